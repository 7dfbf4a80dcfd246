// The whole search: one of two, by the score, and what holds for both. The lower bound of a step is
// simpler than either: it shares the work of each layer over the places as fractions and knows
// nothing of stages, messages or memory.
//
// The sum of a stage's gradients over its replicas (a ring) is as slow as its slowest link and as
// its least tensor-parallel degree. A search that bounds the length of all sums therefore has to
// choose, stage by stage, which places and which degrees are allowed: a *rule*. Places are few, so
// a set of them is the bits of a number and every set is tried.
//
// Rules that another one contains are left out, since whatever keeps the smaller rule keeps the
// larger one too. The lengths that a sum may have are few; a search goes through them and asks for
// the rules that keep each.
#include "runners/plan/rivals/sailor/sailor_search.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"

namespace heteroperf {
namespace {

/// Devices and places must agree; negative counts and no devices at all are refused.
void check_devices(const SailorTables& tables, const SailorDevices& devices) {
  ProblemList problems;
  const std::vector<std::string>& places = tables.places();
  if (devices.size() != places.size()) {
    problems.add(fmt::format("devices of {} places", devices.size()),
                 fmt::format("there are {}", places.size()));
  }
  for (std::size_t p = 0; p < std::min(devices.size(), places.size()); ++p) {
    if (devices[p] < 0) problems.add(fmt::format("{} devices {}", devices[p], places[p]));
  }
  if (places_in_use(devices).empty()) problems.add("no devices", "a plan is for one or more");
  problems.throw_if_any();
}

/// Says what the least demanding plan needs on the largest device: the smallest excess is the
/// nearest miss.
[[noreturn]] void refuse(const SailorSearch& search) {
  const SailorTables& tables = search.tables;
  double best = infinite;
  std::string why = "no profile or link serves the devices that there are";
  const int stages = search.most_stages(tables.layers());
  const std::vector<int> bounds = even_bounds(tables.layers(), stages);
  for (const int place : places_in_use(search.devices)) {
    for (const int tensor : tables.degrees(place)) {
      const std::int64_t size = tables.micro_batches({place, tensor}).front();
      for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
        const double bytes =
            tables.memory_bytes(tensor, size, layers_between(bounds, s), bounds.size() - 1 - s);
        const double excess = bytes - tables.memory_limit_bytes(place);
        if (excess <= 0 || excess >= best) continue;
        best = excess;
        why = fmt::format("the nearest misses by {:.2f} GiB: stage {} of {} on {} in degree {}",
                          excess / 1073741824.0, s, stages, tables.name(place), tensor);
      }
    }
  }
  throw UserError(fmt::format("{} fits nowhere on these devices", tables.model()), why,
                  "More devices, or devices of more memory, take it.");
}

/// Times that the bound's slownesses are gone through.
constexpr int bound_rounds = 30;

/// The least device-seconds per sample of every layer.
std::vector<double> least_work(const SailorTables& tables, int place) {
  std::vector<double> result(tables.layers(), infinite);
  for (const int tensor : tables.degrees(place)) {
    for (const std::int64_t size : tables.micro_batches({place, tensor})) {
      int layer = 0;
      for (double& least : result) {
        const double time = tables.compute_s({place, tensor}, size, {layer, layer + 1});
        least = std::min(least, time * tensor / static_cast<double>(size));
        ++layer;
      }
    }
  }
  return result;
}

/// Sums that miss a limit by rounding alone still keep it.
constexpr double limit_rounding = 1e-9;

}  // namespace

bool SailorSearch::has_time() {
  if (stopwatch.elapsed_s() <= time_limit_s) return true;
  result.complete = false;
  return false;
}

int SailorSearch::all_devices() const { return std::accumulate(devices.begin(), devices.end(), 0); }

int SailorSearch::most_stages(int most) const {
  return std::min({most, tables.layers(), all_devices()});
}

std::vector<int> even_bounds(int layers, int stages) {
  std::vector<int> bounds(1, 0);
  // The last `more` stages have one layer more.
  const int least = layers / stages, more = layers % stages;
  for (int s = 0; s < stages; ++s) {
    bounds.push_back(bounds.back() + least + (s >= stages - more ? 1 : 0));
  }
  return bounds;
}

SailorSearchResult search_sailor(const SailorTables& tables, const SailorDevices& devices,
                                 SailorScore score, double time_limit_s) {
  check_devices(tables, devices);
  SailorSearch search{tables, devices, time_limit_s, {}, {}};
  (score == SailorScore::published ? search_published : search_extended)(search);
  if (search.result.plan.stages.empty()) refuse(search);
  check_sailor_plan(tables, search.result.plan);
  search.result.seconds = search.stopwatch.elapsed_s();
  return std::move(search.result);
}

// Any slowness of the places gives a valid bound; a better one is looked for by changing one
// place's slowness at a time by a few per cent, and keeping what raises the bound.
double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices) {
  std::vector<std::vector<double>> work;
  std::vector<double> counts;
  for (const int place : places_in_use(devices)) {
    if (tables.degrees(place).empty()) continue;
    work.push_back(least_work(tables, place));
    counts.push_back(devices[place]);
  }
  if (work.empty()) return 0;
  // Gives the bound per sample, with λ_l the least over the places of u_pl / slowness_p.
  std::vector<double> slowness;
  const auto bound_of = [&] {
    double sum = 0, rate = 0;
    for (std::size_t l = 0; l < work[0].size(); ++l) {
      double least = infinite;
      for (std::size_t p = 0; p < work.size(); ++p) {
        least = std::min(least, work[p][l] / slowness[p]);
      }
      sum += least;
    }
    for (std::size_t p = 0; p < work.size(); ++p) rate += counts[p] / slowness[p];
    return sum / rate;
  };
  // From the whole model's ratios, place by place to a better one.
  for (const std::vector<double>& layers : work) {
    slowness.push_back(std::accumulate(layers.begin(), layers.end(), 0.0));
  }
  double bound = bound_of();
  for (int round = 0; round < bound_rounds; ++round) {
    for (double& value : slowness) {
      for (const double factor : {0.9, 0.98, 1.02, 1.1}) {
        value *= factor;
        const double better = bound_of();
        if (!(better > bound)) value /= factor;
        bound = std::max(bound, better);
      }
    }
  }
  return static_cast<double>(tables.global_batch()) * bound;
}

StageRules::StageRules(const SailorTables& tables, const std::vector<int>& bounds,
                       const SailorDevices& devices)
    : tables_(tables), bounds_(bounds), places_(places_in_use(devices)) {
  for (const int place : places_) {
    all_ |= 1u << place;
    for (const int tensor : tables.degrees(place)) degrees_.insert(tensor);
  }
}

// Any two allowed places may become neighbours in the ring, a place and itself included, so the
// slowest pair counts. The least degree shares the fewest links.
double StageRules::reduction_s(std::size_t s, const StageRule& rule, int width) const {
  double most = 0;
  for (const int a : places_) {
    for (const int b : places_) {
      if (!rule.allows({a, rule.least_tensor}) || !rule.allows({b, rule.least_tensor})) continue;
      most = std::max(
          most, tables_.reduction_s(a, b, width, rule.least_tensor, layers_between(bounds_, s)));
    }
  }
  return most;
}

// Walks over the sets of places, the whole set first. For each set the least degree that keeps the
// limit is the widest rule; a rule whose places and degrees another rule allows too is left out.
std::vector<StageRule> StageRules::within(std::size_t s, double limit_s, int width) const {
  std::vector<StageRule> rules;
  // (places − 1) & all_ is the next smaller subset of all_.
  for (std::uint32_t places = all_; places > 0; places = (places - 1) & all_) {
    for (const int least : degrees_) {
      const StageRule rule{places, least};
      if (reduction_s(s, rule, width) > limit_s * (1 + limit_rounding)) continue;
      const bool contained = std::ranges::any_of(rules, [&](const StageRule& wider) {
        return (places & ~wider.places) == 0 && wider.least_tensor <= least;
      });
      if (!contained) rules.push_back(rule);
      break;
    }
  }
  return rules;
}

// There are as many lengths as rules, at most: the search tries each as the bound of all stages.
std::set<double> StageRules::lengths(int width) const {
  std::set<double> lengths;
  for (std::size_t s = 0; s + 1 < bounds_.size(); ++s) {
    for (std::uint32_t places = all_; places > 0; places = (places - 1) & all_) {
      for (const int least : degrees_) lengths.insert(reduction_s(s, {places, least}, width));
    }
  }
  return lengths;
}

}  // namespace heteroperf
