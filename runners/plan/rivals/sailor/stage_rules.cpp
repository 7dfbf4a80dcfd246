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

namespace heteroperf {
namespace {

/// Sums that miss a limit by rounding alone still keep it.
constexpr double limit_rounding = 1e-9;

}  // namespace

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
      const bool contained = std::any_of(rules.begin(), rules.end(), [&](const StageRule& wider) {
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
