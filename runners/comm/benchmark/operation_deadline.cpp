#include "runners/comm/benchmark/operation_deadline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace heteroperf {
namespace {

constexpr double least_limit_s = 5;
constexpr double times_predicted = 20;
constexpr auto glance = std::chrono::milliseconds(100);

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Seconds strict_limit(Seconds predicted) {
  return Seconds(std::max(least_limit_s, times_predicted * predicted.value()));
}

OperationDeadline::OperationDeadline(ControlChannel& control, RankId rank)
    : control_(control), rank_(rank), thread_([this] { watch(); }) {}

OperationDeadline::~OperationDeadline() {
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

void OperationDeadline::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    ended_changed_.wait_for(lock, glance);
    if (ended_ || now_ns() < due_ns_.load(std::memory_order_relaxed)) continue;
    end();
    const std::string reason = fmt::format("{} took longer than its deadline of {:g} s", operation_,
                                           static_cast<double>(limit_ns_.load()) * 1e-9);
    lock.unlock();
    control_.abort({rank_, ErrorKind::timeout, reason});
    lock.lock();
  }
}

}  // namespace heteroperf
