// Memory and copies between a device and its host, with deadlines.
//
// A device that hangs never ends its copies, so every copy is watched. Copies of one device may run
// one after another: the deadline counts from the later one of the copy's start and the last end of
// any copy. Memory to which an unfinished copy may still write is never given back.
#include "runners/comm/relay/staging.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/paced/link_clock.hpp"

namespace heteroperf {

void Idle::pause() {
  if (++rounds_ < 20) return;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void SlotMemory::reserve(DeviceCopier& copier, std::size_t slots, std::size_t chunk) {
  slots_ = slots;
  chunk_ = chunk;
  if (slots * chunk <= bytes_) return;
  memory_.reset();
  bytes_ = slots * chunk;
  memory_ = copier.host_memory(bytes_);
}

void SlotMemory::abandon() {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<std::byte[]>>;
  std::lock_guard lock(mutex);
  kept.push_back(std::move(memory_));
  bytes_ = 0;
}

WatchedCopier::Copy WatchedCopier::start_read(const std::byte* device, std::span<std::byte> host) {
  return {copier_.start_read(device, host), host_now()};
}

WatchedCopier::Copy WatchedCopier::start_write(std::span<const std::byte> host, std::byte* device) {
  return {copier_.start_write(host, device), host_now()};
}

bool WatchedCopier::done(const Copy& copy, const char* what, std::size_t chunk) {
  const bool ended = copier_.done(copy.ticket);
  const Instant now = host_now();
  if (ended) {
    last_end_ = now;
  } else if (now - std::max(copy.started, last_end_) > to_duration(Seconds(timeout_s_))) {
    throw SystemError(fmt::format("{} of chunk {} on {} does not end", what, chunk, copier_.name()),
                      fmt::format("waited {:g} s for the device", timeout_s_),
                      "Look at the device and its driver's log", ErrorKind::timeout);
  }
  return ended;
}

MutableBuffer HostStage::read(ConstBuffer values) {
  in_.reserve(device_, 1, values.bytes());
  const std::span<std::byte> host = in_.slot(0, values.bytes());
  if (!host.empty()) {
    wait_for(copier_.start_read(static_cast<const std::byte*>(values.data), host),
             "the copy to the host");
  }
  return {host.data(), values.count, values.type};
}

MutableBuffer HostStage::room(ConstBuffer like) {
  out_.reserve(device_, 1, like.bytes());
  return {out_.slot(0, like.bytes()).data(), like.count, like.type};
}

void HostStage::write(ConstBuffer host, MutableBuffer values) {
  if (host.count == 0) return;
  wait_for(copier_.start_write({static_cast<const std::byte*>(host.data), host.bytes()},
                               static_cast<std::byte*>(values.data)),
           "the copy to the device");
}

void HostStage::wait_for(const WatchedCopier::Copy& copy, const char* what) {
  try {
    for (Idle idle; !copier_.done(copy, what, 0);) idle.pause();
  } catch (...) {
    in_.abandon();
    out_.abandon();
    throw;
  }
}

}  // namespace heteroperf
