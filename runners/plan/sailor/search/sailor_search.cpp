#include "runners/plan/sailor/search/sailor_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/sailor/sailor_score.hpp"
#include "runners/plan/sailor/search/sailor_plain_search.hpp"

namespace heteroperf {
namespace {

constexpr int most_plain_stages = 12, most_extended_stages = 4;
/// Layers that a cut is moved by at once.
constexpr int cut_steps[] = {-4, -2, -1, 1, 2, 4};

class SailorSearch {
 public:
  SailorSearch(const SailorTables& tables, const SailorDevices& devices,
               const SailorSearchOptions& options)
      : tables_(tables), devices_(devices), options_(options) {}

  SailorSearchResult run() {
    check();
    if (options_.score == SailorScore::published) {
      search_plain();
    } else {
      search_extended();
    }
    if (result_.plan.stages.empty()) refuse();
    check_sailor_plan(tables_, result_.plan);
    result_.seconds = stopwatch_.elapsed_s();
    return std::move(result_);
  }

 private:
  void check() const;
  [[noreturn]] void refuse() const;
  void search_plain();
  void search_extended();
  void descend(std::vector<int> bounds);
  double fractional_s(const std::vector<int>& bounds);
  std::set<std::vector<int>> starts(int stages) const;

  int most_stages(int own) const {
    const int devices = std::accumulate(devices_.begin(), devices_.end(), 0);
    const int most = options_.most_stages > 0 ? options_.most_stages : own;
    return std::min({most, tables_.layers(), devices});
  }
  bool has_time() {
    if (stopwatch_.elapsed_s() <= options_.time_limit_s) return true;
    result_.complete = false;
    return false;
  }
  void take(const ScoredSailorPlan& plan) {
    result_.plan = plan.plan;
    result_.step_time_s = plan.step_time_s;
  }

  const SailorTables& tables_;
  const SailorDevices& devices_;
  const SailorSearchOptions& options_;
  Stopwatch stopwatch_;
  SailorSearchResult result_;
  std::map<std::vector<int>, double> known_;  ///< by bounds, in fractions
};

void SailorSearch::check() const {
  ProblemList problems;
  if (devices_.size() != tables_.places().size()) {
    problems.add(fmt::format("devices of {} places", devices_.size()),
                 fmt::format("there are {}", tables_.places().size()));
  }
  for (std::size_t p = 0; p < devices_.size() && p < tables_.places().size(); ++p) {
    if (devices_[p] >= 0) continue;
    problems.add(fmt::format("{} devices {}", devices_[p], tables_.places()[p]));
  }
  if (std::all_of(devices_.begin(), devices_.end(), [](int count) { return count <= 0; })) {
    problems.add("no devices", "a plan is for one or more");
  }
  problems.throw_if_any();
}

/// Says what the least demanding plan needs on the largest device.
void SailorSearch::refuse() const {
  double best = infinite;
  std::string why = "no profile or link serves the devices that there are";
  for (std::size_t p = 0; p < devices_.size(); ++p) {
    const int place = static_cast<int>(p), stages = most_stages(tables_.layers());
    if (devices_[p] == 0) continue;
    for (const int tensor : tables_.degrees(place)) {
      const auto sizes = tables_.micro_batches(place, tensor);
      const std::vector<int> bounds = even_bounds(tables_.layers(), stages);
      for (int s = 0; s < stages; ++s) {
        const double bytes =
            tables_.memory_bytes(tensor, sizes.front(), bounds[static_cast<std::size_t>(s)],
                                 bounds[static_cast<std::size_t>(s) + 1], stages - s);
        const double excess = bytes - tables_.memory_limit_bytes(place);
        if (excess <= 0 || excess >= best) continue;
        best = excess;
        why = fmt::format("the nearest misses by {:.2f} GiB: stage {} of {} on {} in degree {}",
                          excess / 1073741824.0, s, stages, tables_.places()[p], tensor);
      }
    }
  }
  throw UserError(fmt::format("{} fits nowhere on these devices", tables_.model()), why,
                  "More devices, or devices of more memory, take it.");
}

void SailorSearch::search_plain() {
  SailorPlainSearch search(tables_, devices_, options_.layers);
  for (int stages = 1; stages <= most_stages(most_plain_stages) && has_time(); ++stages) {
    search.lay_out(stages);
  }
  while (has_time() && search.lay_out_beside_best()) {
  }
  while (has_time() && search.improve_next()) {
  }
  result_.candidates = search.candidates();
  if (search.best() != nullptr) take(*search.best());
}

/// Even layers, and even parameters.
std::set<std::vector<int>> SailorSearch::starts(int stages) const {
  std::set<std::vector<int>> result{even_bounds(tables_.layers(), stages)};
  std::vector<int> bounds(1, 0);
  const auto held = [&](int end) { return tables_.memory_bytes(1, 1, 0, end, 0); };
  const double none = held(0), all = held(tables_.layers()) - none;
  for (int s = 1; s < stages; ++s) {
    int end = bounds.back() + 1;
    while (end < tables_.layers() - (stages - s) && held(end) - none < all * s / stages) ++end;
    bounds.push_back(end);
  }
  bounds.push_back(tables_.layers());
  result.insert(bounds);
  return result;
}

double SailorSearch::fractional_s(const std::vector<int>& bounds) {
  const auto found = known_.find(bounds);
  if (found != known_.end()) return found->second;
  SailorCuts cuts(tables_, bounds, devices_);
  const double time = cuts.fractional_s(1e6);
  result_.candidates += cuts.candidates();
  known_.emplace(bounds, time);
  return time;
}

/// Moves one cut at a time, the best move of all.
void SailorSearch::descend(std::vector<int> bounds) {
  double time = fractional_s(bounds);
  for (bool moved = true; moved && has_time();) {
    moved = false;
    const std::vector<int> from = bounds;
    for (std::size_t cut = 1; cut + 1 < from.size(); ++cut) {
      for (const int step : cut_steps) {
        std::vector<int> next = from;
        next[cut] += step;
        if (next[cut] <= next[cut - 1] || next[cut] >= next[cut + 1] || !has_time()) continue;
        const double own = fractional_s(next);
        if (own >= time) continue;
        time = own;
        bounds = next;
        moved = true;
      }
    }
  }
}

void SailorSearch::search_extended() {
  for (int stages = 1; stages <= most_stages(most_extended_stages) && has_time(); ++stages) {
    for (const std::vector<int>& bounds : starts(stages)) descend(bounds);
  }
  std::vector<std::pair<double, std::vector<int>>> order;
  for (const auto& [bounds, time] : known_) order.emplace_back(time, bounds);
  std::sort(order.begin(), order.end());
  if (!order.empty()) result_.fractional_s = order.front().first;
  double best = 1e6;
  for (const auto& [time, bounds] : order) {
    if (time >= best || !has_time()) break;
    SailorCuts cuts(tables_, bounds, devices_);
    if (const auto found = cuts.whole(best)) {
      best = found->step_time_s;
      take(*found);
    }
    result_.candidates += cuts.candidates();
  }
}

}  // namespace

SailorSearchResult search_sailor(const SailorTables& tables, const SailorDevices& devices,
                                 const SailorSearchOptions& options) {
  return SailorSearch(tables, devices, options).run();
}

}  // namespace heteroperf
