// The strict deadline of a benchmark's operations.
//
// A thread of its own looks at the clock ten times a second. A rank that is late tells rank 0 by a
// message over the control channel. Rank 0 waits a second for the news of others and then knows who
// is late and who is not: the one that is not has not taken part, and it breaks the run.
#include "runners/comm/benchmark/operation_deadline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "metrics/base/clock.hpp"

namespace heteroperf {
namespace {

constexpr double least_limit_s = 5;
constexpr double times_predicted = 20;
constexpr auto glance = std::chrono::milliseconds(100);
/// The news of other late ranks may take this long after the first.
constexpr std::int64_t news_ns = 1'000'000'000;
/// The work has this long to end by itself after a stop.
constexpr std::int64_t patience_ns = 2'000'000'000;

}  // namespace

Seconds strict_limit(Seconds predicted) {
  return Seconds(std::max(least_limit_s, times_predicted * predicted.value()));
}

OperationDeadline::OperationDeadline(ControlChannel& control, RankId rank, int ranks,
                                     std::function<bool()> stop)
    : control_(control), rank_(rank), late_(ranks), stop_(std::move(stop)) {
  if (rank == RankId(0)) {
    service_.emplace(control, [this](RankId from, std::string message, ControlChannel::Reply) {
      note_late(from, std::move(message));
    });
  }
  thread_ = std::thread([this] { watch(); });
}

OperationDeadline::~OperationDeadline() {
  service_.reset();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_one();
  thread_.join();
}

void OperationDeadline::expect(std::string operation, Seconds limit) {
  const std::lock_guard lock(mutex_);
  operation_ = std::move(operation);
  limit_ns_ = static_cast<std::int64_t>(limit.value() * 1e9);
}

void OperationDeadline::begin() {
  due_ns_.store(now_ns() + limit_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void OperationDeadline::note_late(RankId rank, std::string message) {
  const std::lock_guard lock(mutex_);
  late_[rank.index()] = true;
  if (first_late_ns_ != never) return;
  first_late_ns_ = now_ns();
  first_message_ = std::move(message);
}

std::optional<RankFailure> OperationDeadline::verdict() const {
  if (first_late_ns_ == never || now_ns() < first_late_ns_ + news_ns) return std::nullopt;
  const auto absent = std::find(late_.begin(), late_.end(), false);
  if (absent == late_.end()) {
    return RankFailure{rank_, ErrorKind::timeout,
                       first_message_ + "; every rank takes part and none comes through"};
  }
  return RankFailure{RankId(absent - late_.begin()), ErrorKind::timeout,
                     first_message_ + "; this rank has not taken part"};
}

std::optional<RankFailure> OperationDeadline::interruption() {
  if (!stop_ || !stop_()) return std::nullopt;
  if (stop_due_ns_ == never) stop_due_ns_ = now_ns() + patience_ns;
  if (now_ns() < stop_due_ns_) return std::nullopt;
  return RankFailure{rank_, ErrorKind::interrupted, "stopped by a signal"};
}

void OperationDeadline::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    ended_changed_.wait_for(lock, glance);
    const bool late = now_ns() >= due_ns_.load(std::memory_order_relaxed);
    const auto interrupted = interruption();
    if (ended_ || (!late && first_late_ns_ == never && !interrupted)) continue;
    const std::string message =
        fmt::format("{} took longer than its deadline of {:g} s", operation_,
                    static_cast<double>(limit_ns_.load()) * 1e-9);
    const auto broken = interrupted ? interrupted : verdict();
    if (late) end();
    if (broken) first_late_ns_ = never;
    // The thread of the control channel may want the lock.
    lock.unlock();
    if (late) control_.post(message);
    if (broken) control_.abort(*broken);
    lock.lock();
  }
}

}  // namespace heteroperf
