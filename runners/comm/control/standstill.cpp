#include "runners/comm/control/standstill.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// A wait that has just ended is still in the last report of its rank.
constexpr int reports_that_count = 3;
constexpr const char* cause =
    "though all of them live: a link between them is cut, or their calls do not match";

using Waits = std::vector<std::optional<OverdueWait>>;

bool holds(const std::vector<RankId>& ranks, RankId rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// The first stuck rank that this one needs.
RankId next_of(RankId rank, const Waits& waits) { return waits[position(rank)]->needed.front(); }

/// From the first stuck rank along what each one needs first, until a rank comes again.
std::vector<RankId> circle_of(const std::vector<RankId>& stuck, const Waits& waits) {
  std::vector<RankId> path{stuck.front()};
  while (true) {
    const RankId next = next_of(path.back(), waits);
    const auto again = std::find(path.begin(), path.end(), next);
    if (again != path.end()) return {again, path.end()};
    path.push_back(next);
  }
}

/// Two that need each other come before a longer circle: the link is theirs.
std::vector<RankId> culprits(const std::vector<RankId>& stuck, const Waits& waits) {
  for (const RankId a : stuck) {
    for (const RankId b : waits[position(a)]->needed) {
      if (holds(waits[position(b)]->needed, a)) return {a, b};
    }
  }
  return circle_of(stuck, waits);
}

RankFailure failure_of(const std::vector<RankId>& ranks, double waited_s) {
  std::vector<int> numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value());
  const RankId named = *std::max_element(ranks.begin(), ranks.end());
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

std::vector<RankId> stuck_ranks(const Waits& waits) {
  std::vector<bool> stuck(waits.size());
  for (std::size_t r = 0; r < waits.size(); ++r) stuck[r] = waits[r].has_value();
  const auto has_hope = [&](std::size_t r) {
    const auto& needed = waits[r]->needed;
    return needed.empty() || std::any_of(needed.begin(), needed.end(), [&](RankId rank) {
             return position(rank) >= stuck.size() || !stuck[position(rank)];
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
  std::vector<RankId> found;
  for (std::size_t r = 0; r < waits.size(); ++r) {
    if (stuck[r]) found.emplace_back(static_cast<std::int32_t>(r));
  }
  return found;
}

void Standstill::note(RankId rank, std::optional<OverdueWait> wait) {
  Report& report = reports_[position(rank)];
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
