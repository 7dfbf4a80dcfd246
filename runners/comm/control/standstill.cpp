#include "runners/comm/control/standstill.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

// A standstill is a set of living ranks that wait for each other for ever, because a link between
// them is cut or because their calls do not match. Signs of life do not show it. It is found in
// three steps:
//
//   1. every rank keeps a ledger of its threads' waits; a wait without progress becomes overdue,
//      and the rank's signs of life then carry the ranks that it needs;
//   2. rank 0 takes the overdue ranks and strikes out, again and again, every rank that needs
//      somebody outside of what is left, until nothing changes;
//
//          0 ──► 1      0 and 1 need each other: stuck
//          0 ◄── 1
//          2 ──► 3      3 computes, so 2 has hope: struck out
//
//   3. what is left, if it stays the same for three reports of each rank, is stuck. Two ranks that
//      need each other are named, or else a circle of ranks.

namespace heteroperf {
namespace {

constexpr double slowest_bytes_per_s = 1.25e6;
/// A wait that has just ended is still in the last report of its rank.
constexpr int reports_that_count = 3;
constexpr const char* cause =
    "though all of them live: a link between them is cut, or their calls do not match";

using Waits = std::vector<std::optional<OverdueWait>>;

std::vector<RankId> in_order(std::vector<RankId> ranks) {
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

const std::vector<RankId>& needed_by(RankId rank, const Waits& waits) {
  return waits[rank.index()]->needed;
}

/// Walks from the first stuck rank to the first rank that each one needs, until a rank comes again.
std::vector<RankId> circle_of(const std::vector<RankId>& stuck, const Waits& waits) {
  std::vector<RankId> path{stuck.front()};
  while (true) {
    const RankId next = needed_by(path.back(), waits).front();
    const auto again = std::ranges::find(path, next);
    if (again != path.end()) return {again, path.end()};
    path.push_back(next);
  }
}

/// Two ranks that need each other come before a longer circle: the broken link is theirs.
std::vector<RankId> culprits(const std::vector<RankId>& stuck, const Waits& waits) {
  for (const RankId a : stuck) {
    for (const RankId b : needed_by(a, waits)) {
      if (std::ranges::count(needed_by(b, waits), a) > 0) return {a, b};
    }
  }
  return circle_of(stuck, waits);
}

RankFailure failure_of(const std::vector<RankId>& ranks, double waited_s) {
  std::vector<int> numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value());
  const RankId named = *std::ranges::max_element(ranks);
  if (numbers.size() == 2) {
    return {named, ErrorKind::timeout,
            fmt::format("ranks {} and {} have waited for each other for {:g} s {}", numbers[0],
                        numbers[1], waited_s, cause)};
  }
  return {named, ErrorKind::timeout,
          fmt::format("ranks {} have waited in a circle, each for the next, for {:g} s {}",
                      fmt::join(numbers, ", "), waited_s, cause)};
}

}  // namespace

struct WaitLedger::KnownThread {
  std::weak_ptr<WaitLedger> ledger;
  const WaitLedger* address = nullptr;
  ~KnownThread() { leave(); }
  void leave() {
    if (const auto alive = ledger.lock()) alive->forget_thread();
  }
};

void WaitLedger::note_thread() {
  thread_local KnownThread known;
  if (known.address == this && !known.ledger.expired()) return;
  known.leave();
  known.ledger = weak_from_this();
  known.address = this;
  const std::lock_guard lock(mutex_);
  threads_[std::this_thread::get_id()];
}

void WaitLedger::forget_thread() {
  const std::lock_guard lock(mutex_);
  threads_.erase(std::this_thread::get_id());
}

void WaitLedger::waits_for(std::span<const RankId> needed, Bytes under_way, double now_s) {
  std::vector<RankId> peers = in_order({needed.begin(), needed.end()});
  std::erase(peers, self_);
  const std::lock_guard lock(mutex_);
  ThreadWait& wait = threads_[std::this_thread::get_id()];
  if (peers == wait.needed && under_way == wait.under_way) return;
  ++id_;
  wait = {std::move(peers), under_way, now_s};
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

std::vector<RankId> stuck_ranks(const Waits& waits) {
  std::vector<bool> stuck(waits.size());
  for (std::size_t r = 0; r < waits.size(); ++r) stuck[r] = waits[r].has_value();
  const auto has_hope = [&](std::size_t r) {
    const auto& needed = waits[r]->needed;
    return needed.empty() || std::ranges::any_of(needed, [&](RankId rank) {
             return rank.index() >= stuck.size() || !stuck[rank.index()];
           });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < waits.size(); ++r) {
      if (!stuck[r] || !has_hope(r)) continue;
      stuck[r] = false;
      changed = true;
    }
  }
  std::vector<RankId> ranks;
  for (std::size_t r = 0; r < waits.size(); ++r) {
    if (stuck[r]) ranks.push_back(RankId(r));
  }
  return ranks;
}

void Standstill::note(RankId rank, std::optional<OverdueWait> wait) {
  Report& report = reports_[rank.index()];
  report.repeats = wait == report.wait ? std::min(report.repeats + 1, reports_that_count) : 1;
  report.wait = std::move(wait);
}

std::optional<RankFailure> Standstill::verdict(double waited_s) {
  Waits waits;
  for (const Report& report : reports_) {
    const bool counts = report.repeats >= reports_that_count;
    waits.push_back(counts ? report.wait : std::nullopt);
  }
  const std::vector<RankId> stuck = stuck_ranks(waits);
  if (stuck.empty()) return std::nullopt;
  return failure_of(culprits(stuck, waits), waited_s);
}

}  // namespace heteroperf
