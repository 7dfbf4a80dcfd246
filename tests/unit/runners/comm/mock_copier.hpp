#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>

#include "runners/comm/buffer.hpp"

namespace heteroperf {

/// A device in this host's memory whose copies end one after another, each a while after the later
/// of its start and the end of the copy before. Bytes move when a copy is seen to have ended.
class MockCopier final : public DeviceCopier {
 public:
  /// A copy of n bytes takes `latency_s` + n · `second_per_byte`, in each direction by itself.
  struct Pace {
    double latency_s = 0, second_per_byte = 0;
  };
  MockCopier(std::string name, Pace read, Pace write)
      : name_(std::move(name)), paces_{read, write} {}

  std::string name() const override { return name_; }
  Ticket start_read(const std::byte* device, std::span<std::byte> host) override {
    return start(0, device, host.data(), host.size());
  }
  Ticket start_write(std::span<const std::byte> host, std::byte* device) override {
    return start(1, host.data(), device, host.size());
  }
  bool done(Ticket ticket) override {
    Move& move = moves_.at(ticket);
    if (Clock::now() < move.end) return false;
    std::copy_n(move.from, move.bytes, move.to);
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Move {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
    Clock::time_point end;
  };

  Ticket start(int direction, const std::byte* from, std::byte* to, std::size_t bytes) {
    const Pace& pace = paces_[direction];
    const std::chrono::duration<double> takes(pace.latency_s +
                                              pace.second_per_byte * static_cast<double>(bytes));
    free_at_[direction] = std::max(free_at_[direction], Clock::now()) +
                          std::chrono::duration_cast<Clock::duration>(takes);
    moves_.push_back({from, to, bytes, free_at_[direction]});
    return moves_.size() - 1;
  }

  std::string name_;
  Pace paces_[2];
  Clock::time_point free_at_[2];
  std::deque<Move> moves_;
};

}  // namespace heteroperf
