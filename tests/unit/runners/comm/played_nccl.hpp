#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/nccl/stream_copier.hpp"

namespace heteroperf {

/// How the played library and its device behave.
struct Script {
  int polls = 3;                     ///< answers "in progress" before every end
  std::string fails{};               ///< a call that answers with a failure
  bool stream_hangs = false;         ///< the stream never ends
  std::string asynchronous_error{};  ///< what status() reports while the stream hangs
  int failing_copy = -1;             ///< number of a copy between device and host that fails
  int endless_copy = -1;             ///< of one that never ends
  DeviceIdentity device{"played", "thread", Bytes(1 << 30)};
  std::string version = "3.2.1";
};

/// Memory that only the played library and its copies can reach: addresses are changed so that
/// ordinary code which uses one ends with a segmentation fault.
class PlayedMemory final : public BufferMemory {
 public:
  explicit PlayedMemory(const Script& script);
  ~PlayedMemory() override;

  bool on_host() const override { return false; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void write(void* to, const void* host, std::size_t bytes) override;
  void read(void* host, const void* from, std::size_t bytes) override;
  DeviceCopier* copier() override { return copier_.get(); }

 private:
  std::unique_ptr<StreamCopier> copier_;
};

/// What it was asked, over its life.
struct PlayedCounts {
  int aborted = 0, destroyed = 0, finalized = 0, groups = 0, messages = 0;
};

/// NCCL played by threads: carries collectives out at once over a communicator of threads, messages
/// in the background, and answers late. Groups are parts of `world`, all of whose ranks make theirs
/// at the same time.
class PlayedNccl final : public NcclLibrary {
 public:
  PlayedNccl(Communicator& world, Script script)
      : world_(world), script_(std::move(script)), memory_(script_) {}

  PlayedCounts counts;

  std::string version() const override { return script_.version; }
  DeviceIdentity device() const override { return script_.device; }
  /// Groups that are made at the same time have ids of different ranks.
  NcclId unique_id() override;
  NcclStatus init(const NcclId&, int ranks, int rank, void*& handle) override;
  NcclStatus split(void* handle, int colour, int key, void*& part) override;
  NcclStatus status(void* handle) override;
  void abort(void* handle) noexcept override;
  NcclStatus finalize(void* handle) override;
  void destroy(void* handle) noexcept override;

  void group_start() override;
  NcclStatus group_end() override;
  NcclStatus all_reduce(ConstBuffer in, void* out, Reduction reduction, void* handle) override;
  NcclStatus reduce(ConstBuffer in, void* out, Reduction reduction, int root,
                    void* handle) override;
  NcclStatus broadcast(MutableBuffer values, int root, void* handle) override;
  NcclStatus all_gather(ConstBuffer in, void* out, void* handle) override;
  NcclStatus reduce_scatter(ConstBuffer in, MutableBuffer out, Reduction reduction,
                            void* handle) override;
  NcclStatus send(ConstBuffer values, int to, void* handle) override;
  NcclStatus receive(MutableBuffer values, int from, void* handle) override;
  NcclStatus stream_status() override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  BufferMemory& memory() override { return memory_; }

 private:
  void* keep(std::unique_ptr<Communicator> group);
  Communicator& group(void* handle);
  NcclStatus enqueue(const char* name, std::function<void()> call);
  NcclStatus late(const std::string& name);

  Communicator& world_;
  Script script_;
  PlayedMemory memory_;
  std::map<void*, std::unique_ptr<Communicator>> groups_;
  std::vector<std::function<void()>> calls_;
  std::vector<std::unique_ptr<Transfer>> messages_;
  bool grouping_ = false;
  int pending_ = 0;
};

/// `inner`, whose buffers are on a device, for callers whose buffers are on the host: every call
/// copies there and back.
std::unique_ptr<Communicator> make_on_device(std::unique_ptr<Communicator> inner);

}  // namespace heteroperf
