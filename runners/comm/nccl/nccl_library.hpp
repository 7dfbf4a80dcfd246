#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "metrics/base/quantity.hpp"
#include "runners/comm/communicator.hpp"

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

}  // namespace heteroperf

/// The module's only entry, by this name and type.
extern "C" {
using HeteroperfNcclEntry = heteroperf::NcclBackend*();
}
