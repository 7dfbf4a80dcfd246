#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
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
///
/// Copies on one stream end in the order in which they start, but a read and a write do not wait
/// for each other. An event recorded behind each copy tells when it has ended. Making an event is
/// slow, so events of ended copies are kept and used again.
class StreamCopier final : public DeviceCopier {
 public:
  explicit StreamCopier(std::shared_ptr<CopyStreams> streams) : streams_(std::move(streams)) {}
  ~StreamCopier() override {
    for (const auto& [ignored, event] : under_way_) streams_->destroy_event(event);
    for (void* event : events_) streams_->destroy_event(event);
  }
  StreamCopier(const StreamCopier&) = delete;
  StreamCopier& operator=(const StreamCopier&) = delete;

  std::string name() const override { return streams_->device(); }
  Ticket start_read(const std::byte* device, std::span<std::byte> host) override {
    return start(CopyStreams::Direction::to_host, host.data(), device, host.size());
  }
  Ticket start_write(std::span<const std::byte> host, std::byte* device) override {
    return start(CopyStreams::Direction::to_device, device, host.data(), host.size());
  }
  bool done(Ticket copy) override {
    const auto entry = under_way_.find(copy);
    HETEROPERF_EXPECT(entry != under_way_.end());
    const NcclStatus status = streams_->status(entry->second);
    if (status.state == NcclStatus::State::failed) fail(status.text);
    if (status.state == NcclStatus::State::in_progress) return false;
    events_.push_back(entry->second);
    under_way_.erase(entry);
    return true;
  }
  std::shared_ptr<std::byte[]> host_memory(std::size_t bytes) override {
    auto* const memory = static_cast<std::byte*>(streams_->pin(bytes > 0 ? bytes : 1));
    return {memory, [streams = streams_](std::byte* pinned) { streams->unpin(pinned); }};
  }

 private:
  Ticket start(CopyStreams::Direction direction, void* to, const void* from, std::size_t bytes) {
    void* const event = free_event();
    // A copy that cannot start has a ticket as well: its event lives as long as this copier.
    const Ticket ticket = next_++;
    under_way_.emplace(ticket, event);
    const NcclStatus status = streams_->start(direction, to, from, bytes, event);
    if (status.state == NcclStatus::State::failed) fail(status.text);
    return ticket;
  }
  void* free_event() {
    if (events_.empty()) return streams_->make_event();
    void* const event = events_.back();
    events_.pop_back();
    return event;
  }
  [[noreturn]] void fail(const std::string& text) const {
    throw SystemError("a copy between " + name() + " and the host failed", text,
                      "nvidia-smi and the driver's log tell about the device.");
  }

  std::shared_ptr<CopyStreams> streams_;
  std::map<Ticket, void*> under_way_;  ///< the events of the copies that have not ended
  std::vector<void*> events_;          ///< events that no copy uses now
  Ticket next_ = 0;
};

}  // namespace heteroperf
