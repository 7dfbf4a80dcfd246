#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/buffer.hpp"
#include "runners/comm/nccl/nccl_library.hpp"

namespace heteroperf {

/// The CUDA calls that copies between one device and this host need. They are an interface for the
/// same reason as NcclLibrary. Events are cudaEvent_t. Nothing blocks but pin() and unpin().
class CopyStreams {
 public:
  enum class Direction { to_host, to_device };

  virtual ~CopyStreams() = default;
  /// The device's name, "cuda:0".
  virtual std::string device() const = 0;
  /// Allocates page-locked memory of the host. Throws SystemError when there is none left.
  virtual void* pin(std::size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;
  virtual void* make_event() = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  /// Starts a cudaMemcpyAsync on the stream of that direction, and records the event behind it.
  virtual NcclStatus start(Direction direction, void* to, const void* from, std::size_t bytes,
                           void* event) = 0;
  /// cudaEventQuery.
  virtual NcclStatus status(void* event) = 0;
};

/// Copies on two streams, one for each direction, with an event behind each copy. Staging memory is
/// page-locked, so that copies run beside everything else.
class StreamCopier final : public DeviceCopier {
 public:
  explicit StreamCopier(std::shared_ptr<CopyStreams> streams) : streams_(std::move(streams)) {}
  ~StreamCopier() override;
  StreamCopier(const StreamCopier&) = delete;
  StreamCopier& operator=(const StreamCopier&) = delete;

  std::string name() const override { return streams_->device(); }
  Ticket start_read(const std::byte* device, std::span<std::byte> host) override {
    return start(CopyStreams::Direction::to_host, host.data(), device, host.size());
  }
  Ticket start_write(std::span<const std::byte> host, std::byte* device) override {
    return start(CopyStreams::Direction::to_device, device, host.data(), host.size());
  }
  bool done(Ticket copy) override;
  std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) override;

 private:
  Ticket start(CopyStreams::Direction direction, void* to, const void* from, std::size_t bytes);
  void* free_event();
  [[noreturn]] void fail(const std::string& text) const;

  std::shared_ptr<CopyStreams> streams_;
  std::map<Ticket, void*> under_way_;  ///< the events of the copies that have not ended
  std::vector<void*> events_;          ///< events that no copy uses now
  Ticket next_ = 0;
};

}  // namespace heteroperf
