#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// The bytes of an ncclUniqueId.
using NcclId = std::array<std::byte, 128>;

/// The answer of a call that may go on in the background.
struct NcclStatus {
  enum class State { done, in_progress, failed };
  State state = State::done;
  std::string text;  ///< the library's words on a failure
};

struct DeviceIdentity {
  std::string vendor;  ///< "nvidia"
  std::string model;   ///< as its driver names it
  Bytes memory{0};
};

/// The calls of NCCL that the communicator needs, on one device and one stream. They are an
/// interface so that the communicator's logic is tested without a GPU. Handles are ncclComm_t.
/// Nothing blocks: handles are made with blocking = 0, and operations are enqueued on the stream.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;

  virtual std::string version() const = 0;
  virtual DeviceIdentity device() const = 0;
  virtual NcclId unique_id() = 0;
  /// `handle` stays in its place until status(handle) is done.
  virtual NcclStatus init(const NcclId& id, int ranks, int rank, void*& handle) = 0;
  /// Makes the group of the ranks with this colour, ordered by key. `part` stays in its place, and
  /// is valid once status(handle) is done.
  virtual NcclStatus split(void* handle, int colour, int key, void*& part) = 0;
  /// ncclCommGetAsyncError: the state of the last call with this handle.
  virtual NcclStatus status(void* handle) = 0;
  /// Gives everything under way up; the handle is gone.
  virtual void abort(void* handle) noexcept = 0;
  /// Flushes the handle; `destroy` follows once status() is done.
  virtual NcclStatus finalize(void* handle) = 0;
  virtual void destroy(void* handle) noexcept = 0;

  virtual void group_start() = 0;
  virtual NcclStatus group_end() = 0;
  virtual NcclStatus all_reduce(ConstBuffer in, void* out, Reduction reduction, void* handle) = 0;
  virtual NcclStatus reduce(ConstBuffer in, void* out, Reduction reduction, int root,
                            void* handle) = 0;
  virtual NcclStatus broadcast(MutableBuffer values, int root, void* handle) = 0;
  virtual NcclStatus all_gather(ConstBuffer in, void* out, void* handle) = 0;
  /// `out` has in.count / ranks elements.
  virtual NcclStatus reduce_scatter(ConstBuffer in, MutableBuffer out, Reduction reduction,
                                    void* handle) = 0;
  virtual NcclStatus send(ConstBuffer values, int to, void* handle) = 0;
  virtual NcclStatus receive(MutableBuffer values, int from, void* handle) = 0;

  /// cudaStreamQuery: done when everything enqueued has ended.
  virtual NcclStatus stream_status() = 0;
  /// Enqueues a copy within the device on the stream.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual BufferMemory& memory() = 0;
};

/// The calls that the NCCL module offers to the program. There is one object per process.
class NcclBackend {
 public:
  virtual ~NcclBackend() = default;
  /// The library's version, "2.28.9". Needs no device.
  virtual std::string version() = 0;
  /// The number of devices; 0 where there is no device or no driver, with the reason in `reason`.
  virtual int devices(std::string& reason) = 0;
  /// Opens device `index` with a stream of its own. NCCL refuses `ranks_on_device` above 1 unless
  /// ranks look like different hosts: settings for that are made here, for functional tests only.
  /// Throws SystemError{environment} with CUDA's words.
  virtual std::shared_ptr<NcclLibrary> open(int index, int rank, int ranks_on_device) = 0;
};

/// One group's handle and the waits for its operations; shared with messages under way. Every wait
/// looks at the stream, the library's asynchronous error and the watch, and aborts the handle when
/// one of them reports a failure.
class NcclHandle {
 public:
  NcclHandle(std::shared_ptr<NcclLibrary> library, std::vector<RankId> members,
             std::shared_ptr<PeerWatch> watch)
      : library_(std::move(library)), members_(std::move(members)), watch_(std::move(watch)) {}
  /// Leaves the group in order, or aborts it while an exception is on its way.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  NcclLibrary& library() { return *library_; }
  const std::shared_ptr<NcclLibrary>& shared_library() const { return library_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  const std::vector<RankId>& members() const { return members_; }
  void*& handle() { return handle_; }

  /// Waits until the library may be called: all messages that were handed over have ended.
  void ready(const std::string& operation);
  /// Waits until handle and stream are idle. `first` is the answer of the call itself.
  void settle(const NcclStatus& first, const std::string& operation);
  /// Waits until the library has taken in its last call; the stream may go on.
  void await_handle(const NcclStatus& first, const std::string& operation);

  /// Adds a message to those that were started and not yet handed to the library; they are one
  /// group, which cannot block itself. Returns the number of the message, from 1.
  std::uint64_t queue(std::function<NcclStatus()> message);
  /// The number of the message that was queued last.
  std::uint64_t last() const { return handed_over_ + queued_.size(); }
  /// True when the message of that number has ended. Hands over the queued messages as soon as the
  /// group before has ended; does not wait.
  bool test(std::uint64_t message, const std::string& operation);
  void wait(std::uint64_t message, const std::string& operation);

 private:
  template <class Ask>
  void poll(NcclStatus status, const std::string& operation, Ask ask);
  void look_after_peers(const std::string& operation);
  NcclStatus stream_and_handle();
  void hand_over(const std::string& operation);
  [[noreturn]] void fail(const std::string& text, const std::string& operation);
  void check_whole(const std::string& operation);
  void abort() noexcept;

  std::shared_ptr<NcclLibrary> library_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  void* handle_ = nullptr;
  std::vector<std::function<NcclStatus()>> queued_;
  std::uint64_t handed_over_ = 0, ended_ = 0;  ///< messages; those between are under way
  bool taken_in_ = true;                       ///< the library has taken in all that is under way
};

}  // namespace heteroperf

/// The module's only entry, by this name and type.
extern "C" {
using HeteroperfNcclEntry = heteroperf::NcclBackend*();
}
