// The whole search. `sailor` lays out every number of even stages, then the cuts beside the best,
// then improves. `sailor+` descends over the cuts by what fractions of pipelines would take, and
// then looks for whole pipelines in the order of these bounds until none can be better.
//
// Fractions of pipelines are a relaxation: no plan of whole pipelines with the same cuts and rules
// is faster. Cuts whose fractional time is no better than the best plan found can therefore be
// passed over, and sorted by it the search ends early. The lower bound of a step is simpler still:
// it shares the work of each layer over the places as fractions and knows nothing of stages,
// messages or memory.
#include "runners/plan/rivals/sailor/sailor_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/rivals/sailor/sailor_plain_search.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"

namespace heteroperf {
namespace {

constexpr int most_plain_stages = 12, most_extended_stages = 4;
/// Layers that a cut is moved by at once.
constexpr int cut_steps[] = {-4, -2, -1, 1, 2, 4};

/// One search: its time limit, its best plan so far, and what it knows of cuts that it has tried.
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

  int most_stages(int most) const {
    return std::min({most, tables_.layers(), std::accumulate(devices_.begin(), devices_.end(), 0)});
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

// Devices and places must agree; negative counts and no devices at all are refused.
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
        // The smallest excess is the nearest miss.
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

// Three phases, each as long as there is time: all even cuts, cuts beside the best, local search.
void SailorSearch::search_plain() {
  SailorPlainSearch search(tables_, devices_);
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

/// Gives two cuts to begin with: even layers, and even parameters.
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

// Descents from different starts meet; cuts are bounded once.
double SailorSearch::fractional_s(const std::vector<int>& bounds) {
  const auto known = known_.find(bounds);
  if (known != known_.end()) return known->second;
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
        const double next_s = fractional_s(next);
        if (next_s >= time) continue;
        time = next_s;
        bounds = next;
        moved = true;
      }
    }
  }
}

// The fractional times bound what whole pipelines can reach, so cuts are tried in their order and
// the search ends at the first whose bound is no better than the best plan.
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
    // All others have higher bounds.
    if (time >= best || !has_time()) break;
    SailorCuts cuts(tables_, bounds, devices_);
    if (const auto plan = cuts.whole(best)) {
      best = plan->step_time_s;
      take(*plan);
    }
    result_.candidates += cuts.candidates();
  }
}

/// Times that the bound's slownesses are gone through.
constexpr int bound_rounds = 30;

/// The least device-seconds per sample of every layer.
std::vector<double> least_work(const SailorTables& tables, int place) {
  std::vector<double> result(static_cast<std::size_t>(tables.layers()), infinite);
  for (const int tensor : tables.degrees(place)) {
    for (const std::int64_t size : tables.micro_batches(place, tensor)) {
      for (int layer = 0; layer < tables.layers(); ++layer) {
        const double time = tables.compute_s(place, tensor, size, layer, layer + 1);
        double& least = result[static_cast<std::size_t>(layer)];
        least = std::min(least, time * tensor / static_cast<double>(size));
      }
    }
  }
  return result;
}

/// The bound per sample, with λ_l the least over the places of u_pl / slowness_p.
double bound_of(const std::vector<std::vector<double>>& work, const std::vector<double>& counts,
                const std::vector<double>& slowness) {
  double sum = 0, rate = 0;
  for (std::size_t l = 0; l < work[0].size(); ++l) {
    double least = work[0][l] / slowness[0];
    for (std::size_t p = 1; p < work.size(); ++p) least = std::min(least, work[p][l] / slowness[p]);
    sum += least;
  }
  for (std::size_t p = 0; p < work.size(); ++p) rate += counts[p] / slowness[p];
  return sum / rate;
}

}  // namespace

SailorSearchResult search_sailor(const SailorTables& tables, const SailorDevices& devices,
                                 const SailorSearchOptions& options) {
  return SailorSearch(tables, devices, options).run();
}

// Any slowness of the places gives a valid bound; a better one is looked for by changing one
// place's slowness at a time by a few per cent, and keeping what raises the bound.
double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices) {
  std::vector<std::vector<double>> work;
  std::vector<double> counts;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    if (devices[p] == 0 || tables.degrees(static_cast<int>(p)).empty()) continue;
    work.push_back(least_work(tables, static_cast<int>(p)));
    counts.push_back(devices[p]);
  }
  if (work.empty()) return 0;
  // From the whole model's ratios, place by place to a better one.
  std::vector<double> slowness;
  for (const std::vector<double>& layers : work) {
    slowness.push_back(std::accumulate(layers.begin(), layers.end(), 0.0));
  }
  double bound = bound_of(work, counts, slowness);
  for (int round = 0; round < bound_rounds; ++round) {
    for (double& value : slowness) {
      for (const double factor : {0.9, 0.98, 1.02, 1.1}) {
        value *= factor;
        const double better = bound_of(work, counts, slowness);
        if (better > bound) {
          bound = better;
        } else {
          value /= factor;
        }
      }
    }
  }
  return static_cast<double>(tables.global_batch()) * bound;
}

}  // namespace heteroperf
