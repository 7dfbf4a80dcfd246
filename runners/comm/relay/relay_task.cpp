#include "runners/comm/relay/relay_task.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "metrics/base/error.hpp"
#include "runners/comm/paced/host_clock.hpp"

namespace heteroperf {
namespace {

const char* mode_name(std::int64_t mode) {
  return mode == static_cast<std::int64_t>(RelayMode::serial) ? "serial" : "pipelined";
}

std::string describe(const RelayTerms& terms) {
  return fmt::format("{} bytes, {}", terms.bytes, mode_name(terms.mode));
}

}  // namespace

void Idle::pause() {
  if (++rounds_ < 20) return;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void run_relay(std::span<RelayTask* const> tasks) {
  const auto finished = [](const RelayTask* task) { return task->finished(); };
  Idle idle;
  while (!std::ranges::all_of(tasks, finished)) {
    bool moved = false;
    for (RelayTask* task : tasks) moved = task->progress() || moved;
    if (moved) {
      idle.reset();
    } else {
      idle.pause();
    }
  }
}

std::size_t RelayTerms::chunk_bytes(std::size_t index) const {
  const std::size_t begin = chunk_begin(index), end = chunk_begin(index + 1);
  return std::min(end, static_cast<std::size_t>(bytes)) - begin;
}

RelayTerms terms_of(const RelayConfig& config, std::size_t bytes) {
  const auto unit = static_cast<std::int64_t>(chunk_unit);
  auto chunk = static_cast<std::int64_t>(config.chunk.value());
  if (chunk == 0) chunk = static_cast<std::int64_t>(best_chunk(Bytes(bytes), config.costs).value());
  const bool serial = config.mode == RelayMode::serial;
  const auto whole = std::max(static_cast<std::int64_t>(bytes), unit);
  chunk = serial ? whole : std::min(chunk, whole);
  chunk = (chunk + unit - 1) / unit * unit;
  return {static_cast<std::int64_t>(bytes), chunk, serial ? 1 : config.slots,
          static_cast<std::int64_t>(config.mode)};
}

Handshake::Handshake(Communicator& group, RankId peer, const RelayTags& tags,
                     const RelayTerms& mine, Side side)
    : group_(group), peer_(peer), tags_(tags), mine_(mine), side_(side), out_{mine.bytes,
                                                                              mine.chunk,
                                                                              mine.slots,
                                                                              mine.mode,
                                                                              tags.data,
                                                                              tags.reply} {
  const bool sends = side == Side::sender;
  receiving_ =
      group.start_receive(std::span<std::int64_t>(in_), peer, sends ? tags.reply : tags.terms);
  if (sends) sending_ = group.start_send(std::span<const std::int64_t>(out_), peer, tags.terms);
  if (!sends && tags.reply >= 0) answer();
}

void Handshake::answer() {
  sending_ = group_.start_send(std::span<const std::int64_t>(out_), peer_, tags_.reply);
}

std::optional<RelayTerms> Handshake::agreed() {
  if (!receiving_->test()) return std::nullopt;
  if (!sending_) {
    tags_.data = static_cast<int>(in_[4]);
    tags_.reply = static_cast<int>(in_[5]);
    answer();
  }
  if (!sending_->test()) return std::nullopt;
  const bool i_receive = side_ == Side::receiver;
  const RelayTerms theirs{in_[0], in_[1], in_[2], in_[3]};
  if (theirs.bytes != mine_.bytes || theirs.mode != mine_.mode) {
    throw Error(
        ErrorKind::run_failed,
        {{fmt::format("the relay's two sides disagree: rank {} {} {}, rank {} {} {}",
                      group_.rank().value(), i_receive ? "awaits" : "sends", describe(mine_),
                      peer_.value(), i_receive ? "sends" : "awaits", describe(theirs)),
          "both need the same number of bytes and the same mode", ""}});
  }
  return RelayTerms{mine_.bytes, std::min(mine_.chunk, theirs.chunk),
                    i_receive ? mine_.slots : theirs.slots, mine_.mode};
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

WatchedCopier::WatchedCopier(DeviceCopier& copier, double timeout_s)
    : copier_(copier), timeout_s_(timeout_s) {}

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

}  // namespace heteroperf
