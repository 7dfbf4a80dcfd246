#include "runners/comm/nccl/stream_copier.hpp"

#include "metrics/base/error.hpp"

// Copies on one stream end in the order in which they start, but a read and a write do not wait for
// each other. An event recorded behind each copy tells when it has ended. Making an event is slow,
// so events of ended copies are kept and used again.

namespace heteroperf {

StreamCopier::~StreamCopier() {
  for (const auto& [ignored, event] : under_way_) streams_->destroy_event(event);
  for (void* event : events_) streams_->destroy_event(event);
}

void* StreamCopier::free_event() {
  if (events_.empty()) return streams_->make_event();
  void* const event = events_.back();
  events_.pop_back();
  return event;
}

DeviceCopier::Ticket StreamCopier::start(CopyStreams::Direction direction, void* to,
                                         const void* from, std::size_t bytes) {
  void* const event = free_event();
  under_way_.emplace(next_, event);
  const NcclStatus status = streams_->start(direction, to, from, bytes, event);
  if (status.state == NcclStatus::State::failed) fail(status.text);
  return next_++;
}

bool StreamCopier::done(Ticket copy) {
  const auto entry = under_way_.find(copy);
  HETEROPERF_EXPECT(entry != under_way_.end());
  const NcclStatus status = streams_->status(entry->second);
  if (status.state == NcclStatus::State::failed) fail(status.text);
  if (status.state == NcclStatus::State::in_progress) return false;
  events_.push_back(entry->second);
  under_way_.erase(entry);
  return true;
}

std::shared_ptr<std::byte[]> StreamCopier::host_memory(std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(streams_->pin(bytes > 0 ? bytes : 1));
  return {memory, [streams = streams_](std::byte* pinned) { streams->unpin(pinned); }};
}

void StreamCopier::fail(const std::string& text) const {
  throw SystemError("a copy between " + name() + " and the host failed", text,
                    "nvidia-smi and the driver's log tell about the device.");
}

}  // namespace heteroperf
