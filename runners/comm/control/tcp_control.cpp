#include "runners/comm/control/tcp_control.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "metrics/base/clock.hpp"

namespace heteroperf {
namespace {

/// What a rank sent before it finished may still be on its way.
constexpr double last_words_s = 2.0;

}  // namespace

TcpControl::TcpControl(RankId rank, int size, const CommConfig& config, Spread spread)
    : rank_(rank),
      config_(config),
      spread_(std::move(spread)),
      waits_(std::make_shared<WaitLedger>(rank)),
      finished_at_s_(static_cast<std::size_t>(size)) {}

void TcpControl::give_up(const std::exception& error) noexcept {
  RankFailure failure{rank_, ErrorKind::run_failed, "no memory", true};  // short: it needs none
  try {
    failure.reason = unexpected_failure(error).what();
    spread_(failure);
  } catch (const std::exception&) {
    state_->fail(std::move(failure));
  }
}

void TcpControl::mark_finished(RankId rank) {
  finished_at_s_[static_cast<std::size_t>(rank.value())] = monotonic_s();
  finished_count_.fetch_add(1);
}

std::optional<RankFailure> TcpControl::failure_among(std::span<const RankId> awaited) const {
  if (!awaited.empty()) waits_->note_thread();
  if (state_->failed()) return state_->failure();
  const auto finished_at_s = [this](RankId rank) {
    return finished_at_s_[static_cast<std::size_t>(rank.value())].load();
  };
  // At the end everybody waits for everybody who has finished.
  if (finished_count_.load() == 0 || finished_at_s(rank_) > 0) return std::nullopt;
  const double now_s = monotonic_s();
  for (RankId rank : awaited) {
    const double since_s = finished_at_s(rank);
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

bool TcpControl::has_paused(double last_round_s, double now_s) const {
  const bool paused = now_s - last_round_s > config_.timeout_s / 2;
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
