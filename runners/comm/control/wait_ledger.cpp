#include "runners/comm/control/wait_ledger.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr double slowest_bytes_per_s = 1.25e6;

std::vector<RankId> in_order(std::vector<RankId> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

struct WaitLedger::KnownThread {
  std::weak_ptr<WaitLedger> ledger;
  const WaitLedger* to = nullptr;
  ~KnownThread() { leave(); }
  void leave() {
    if (const auto alive = ledger.lock()) alive->forget_thread();
  }
};

void WaitLedger::note_thread() {
  thread_local KnownThread known;
  if (known.to == this && !known.ledger.expired()) return;
  known.leave();
  known.ledger = weak_from_this();
  known.to = this;
  const std::lock_guard lock(mutex_);
  threads_[std::this_thread::get_id()];
}

void WaitLedger::forget_thread() {
  const std::lock_guard lock(mutex_);
  threads_.erase(std::this_thread::get_id());
}

void WaitLedger::waits_for(std::span<const RankId> needed, Bytes under_way, double now_s) {
  std::vector<RankId> others = in_order({needed.begin(), needed.end()});
  std::erase(others, self_);
  const std::lock_guard lock(mutex_);
  ThreadWait& wait = threads_[std::this_thread::get_id()];
  if (others == wait.needed && under_way == wait.under_way) return;
  ++id_;
  wait = {std::move(others), under_way, now_s};
}

void WaitLedger::waits_no_more() {
  const std::lock_guard lock(mutex_);
  threads_[std::this_thread::get_id()] = {};
  ++id_;
}

void WaitLedger::start_again(double now_s) {
  const std::lock_guard lock(mutex_);
  ++id_;
  for (auto& [ignored, wait] : threads_) wait.since_s = now_s;
}

std::optional<OverdueWait> WaitLedger::overdue(double now_s, double patience_s) const {
  const std::lock_guard lock(mutex_);
  std::vector<RankId> needed;
  for (const auto& [ignored, wait] : threads_) {
    const double for_bytes_s = static_cast<double>(wait.under_way.value()) / slowest_bytes_per_s;
    const bool is_overdue = now_s - wait.since_s >= patience_s + for_bytes_s;
    if (wait.needed.empty() || !is_overdue) return std::nullopt;
    needed.insert(needed.end(), wait.needed.begin(), wait.needed.end());
  }
  if (needed.empty()) return std::nullopt;
  return OverdueWait{id_, in_order(std::move(needed))};
}

}  // namespace heteroperf
