#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runners/comm/nccl/copy_streams.hpp"
#include "runners/comm/relay/device_copier.hpp"

namespace heteroperf {

/// Copies on streams of their own, one for each direction, with an event behind each of them.
/// Staging memory is page-locked, so that copies run beside everything else.
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
  std::map<Ticket, void*> under_way_;  ///< their events
  std::vector<void*> events_;          ///< those in nobody's use
  Ticket next_ = 0;
};

}  // namespace heteroperf
