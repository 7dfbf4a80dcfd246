#include "runners/plan/sailor/search/stage_rules.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr double limit_rounding = 1e-9;

}  // namespace

StageRules::StageRules(const SailorTables& tables, const std::vector<int>& bounds,
                       const SailorDevices& devices)
    : tables_(tables), bounds_(bounds) {
  std::set<int> degrees;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    if (devices[p] == 0) continue;
    places_.push_back(static_cast<int>(p));
    all_ |= 1u << p;
    for (const int tensor : tables.degrees(static_cast<int>(p))) degrees.insert(tensor);
  }
  degrees_.assign(degrees.begin(), degrees.end());
}

double StageRules::reduction_s(std::size_t s, const StageRule& rule, int width) const {
  double most = 0;
  for (const int a : places_) {
    for (const int b : places_) {
      if (!rule.allows(a, rule.least_tensor) || !rule.allows(b, rule.least_tensor)) continue;
      most = std::max(
          most, tables_.reduction_s(a, b, width, rule.least_tensor, bounds_[s], bounds_[s + 1]));
    }
  }
  return most;
}

std::vector<StageRule> StageRules::within(std::size_t s, double limit_s, int width) const {
  std::vector<StageRule> rules;
  for (std::uint32_t places = all_; places > 0; places = (places - 1) & all_) {
    for (const int least : degrees_) {
      const StageRule rule{places, least};
      if (reduction_s(s, rule, width) > limit_s * (1 + limit_rounding)) continue;
      const bool contained = std::any_of(rules.begin(), rules.end(), [&](const StageRule& other) {
        return (places & ~other.places) == 0 && other.least_tensor <= least;
      });
      if (!contained) rules.push_back(rule);
      break;
    }
  }
  return rules;
}

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
