#include "runners/comm/control/tcp_control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/clock.hpp"

// Both ends of the control channel have one thread with the same loop: sleep until something
// happens, then make a round. In its rounds an end sends signs of life, hears the other side and
// looks for silence. When this process itself was asleep for long (a stopped process, a suspended
// machine), all the silence it sees is its own, so every deadline starts again.

namespace heteroperf {
namespace {

/// The last messages of a rank that has finished may still be on their way for so long.
constexpr double last_words_s = 2.0;

}  // namespace

TcpControl::TcpControl(RankId rank, int size, const CommConfig& config, Spread spread)
    : rank_(rank),
      config_(config),
      spread_(std::move(spread)),
      waits_(std::make_shared<WaitLedger>(rank)),
      finished_at_s_(size) {}

void TcpControl::start_thread() {
  last_round_s_ = monotonic_s();
  thread_ = std::thread([this] { run(); });
}

void TcpControl::stop_thread() {
  ending_ = true;
  wake_->signal();
  thread_.join();
}

void TcpControl::run() try {
  while (!ending_) {
    std::vector<pollfd> entries{{wake_->fd(), POLLIN, 0}};
    add_sockets(entries);
    const double rest_s = next_event_s() - monotonic_s();
    poll(entries.data(), entries.size(), std::max(0, static_cast<int>(std::ceil(rest_s * 1e3))));
    wake_->clear();
    const double now_s = monotonic_s();
    if (!make_round(now_s)) return;
    last_round_s_ = now_s;
  }
} catch (const std::exception& error) {
  give_up(error);
}

void TcpControl::give_up(const std::exception& error) noexcept {
  RankFailure failure{rank_, ErrorKind::run_failed, "no memory", true};  // short: it needs none
  try {
    failure.reason = unexpected_failure(error).what();
    spread_(failure);
  } catch (const std::exception&) {
    state_->fail(std::move(failure));
  }
}

bool TcpControl::is_time_to_beat(double now_s) {
  if (now_s < next_beat_s()) return false;
  last_beat_s_ = now_s;
  return true;
}

void TcpControl::mark_finished(RankId rank) {
  finished_at_s_[rank.index()] = monotonic_s();
  finished_count_.fetch_add(1);
}

std::optional<RankFailure> TcpControl::failure_among(std::span<const RankId> awaited) const {
  if (!awaited.empty()) waits_->note_thread();
  if (state_->failed()) return state_->failure();
  // At the end everybody waits for everybody who has finished.
  if (finished_count_.load() == 0 || finished_at_s_[rank_.index()] > 0) return std::nullopt;
  const double now_s = monotonic_s();
  for (RankId rank : awaited) {
    const double since_s = finished_at_s_[rank.index()];
    if (since_s == 0 || now_s - since_s < last_words_s) continue;
    spread_({rank, ErrorKind::run_failed,
             fmt::format("rank {} has finished without taking part", rank.value())});
    return state_->failure();
  }
  return std::nullopt;
}

void TcpControl::waits_for(std::span<const RankId> needed, Bytes under_way) const {
  waits_->waits_for(needed, under_way, monotonic_s());
}

std::optional<OverdueWait> TcpControl::overdue_wait(double now_s) const {
  const double patience_s =
      std::max(config_.timeout_s / 2, config_.timeout_s - 3 * config_.heartbeat_s);
  return waits_->overdue(now_s, patience_s);
}

bool TcpControl::has_paused(double now_s) const {
  const bool paused = now_s - last_round_s_ > config_.timeout_s / 2;
  if (paused) waits_->start_again(now_s);
  return paused;
}

RankFailure TcpControl::silence_of(RankId rank) const {
  return {rank, ErrorKind::timeout, fmt::format("no sign of life for {:g} s", config_.timeout_s)};
}

RankFailure TcpControl::end_of(RankId rank) {
  return {rank, ErrorKind::run_failed, "process ended, connection closed"};
}

}  // namespace heteroperf
