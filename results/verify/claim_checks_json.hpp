#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "metrics/base/strict_json.hpp"
#include "results/record/verify.hpp"

namespace heteroperf {

/// Compares the claims of a file with their recomputation, number by number, and adds a check for
/// each to `result`, which must outlive this object.
class ClaimChecks {
 public:
  explicit ClaimChecks(Verification& result) : result_(result) {}

  /// Adds the check of a plan's rules; `problem` is the first that it breaks, or empty.
  void sound(const std::string& name, const std::string& problem) {
    result_.checks.push_back(problem_check(name, "a sound plan", problem));
  }

  /// Compares the value at the JSON pointer `path`. A claim that the file does not make is not
  /// checked. Numbers agree to nine digits, since sums may be added up in another order.
  void claim(const Json& file, const std::string& path, const Json& expected) {
    const Json::json_pointer pointer(path);
    if (!file.contains(pointer)) return;
    const Json& actual = file.at(pointer);
    result_.checks.push_back(
        {path, agree(expected, actual), expected.dump(), actual.dump(), CheckText::json});
  }

 private:
  /// Objects and arrays agree where all of their parts do; anything else must be equal.
  static bool agree(const Json& a, const Json& b) {
    if (a.is_number() && b.is_number()) {
      const double x = a.get<double>(), y = b.get<double>();
      return std::abs(x - y) <= 1e-9 * std::max(std::abs(x), std::abs(y));
    }
    if (a.is_array() && b.is_array()) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), agree);
    }
    if (!a.is_object() || !b.is_object()) return a == b;
    const auto& parts = a.items();
    return a.size() == b.size() && std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
             return b.contains(part.key()) && agree(part.value(), b.at(part.key()));
           });
  }

  Verification& result_;
};

}  // namespace heteroperf
