#include "suite/sweep/swept_axes.hpp"

#include <map>
#include <set>

namespace heteroperf {
namespace {

/// Holds that each value has one digit and each digit one value.
class DigitsOfValues {
 public:
  bool hold(std::size_t digit, const SweepPoint& value) {
    return values_.emplace(digit, value).first->second == value &&
           digits_.emplace(value, digit).first->second == digit;
  }

 private:
  std::map<std::size_t, SweepPoint> values_;
  std::map<SweepPoint, std::size_t> digits_;
};

SweepPoint head_of(const SweepPoint& point, std::size_t keys) {
  return {point.begin(), point.begin() + static_cast<std::ptrdiff_t>(keys)};
}

SweepPoint tail_of(const SweepPoint& point, std::size_t from) {
  return {point.begin() + static_cast<std::ptrdiff_t>(from), point.end()};
}

/// Whether the keys from `at` on go through all their values for each value of those before.
bool independent(const std::vector<PlacedPoint>& points, std::size_t at) {
  std::set<SweepPoint> tails;
  for (const PlacedPoint& one : points) tails.insert(tail_of(one.point, at));
  DigitsOfValues heads, rest;
  for (const PlacedPoint& one : points) {
    const bool fits = heads.hold(one.place / tails.size(), head_of(one.point, at)) &&
                      rest.hold(one.place % tails.size(), tail_of(one.point, at));
    if (!fits) return false;
  }
  return true;
}

}  // namespace

std::vector<std::vector<std::string>> swept_axes(const std::vector<PlacedPoint>& points) {
  std::vector<std::vector<std::string>> axes;
  const SweepPoint& keys = points.front().point;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i == 0 || independent(points, i)) axes.emplace_back();
    axes.back().push_back(keys[i].first);
  }
  return axes;
}

}  // namespace heteroperf
