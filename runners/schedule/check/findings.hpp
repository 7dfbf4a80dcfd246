#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/schedule/check/validator.hpp"

namespace heteroperf {

enum class Check { complete, ordered, placed, matched, collectives, memory, stepped };
constexpr int check_count = 7;

/// What checks find: whether each holds, and the first problems of each.
class Findings {
 public:
  /// Counts a failure. True: there is room for its text.
  bool fail(Check check) { return ++failures_[static_cast<std::size_t>(check)] <= most_problems; }
  void add(std::string problem, std::string why, std::string suggestion = {}) {
    problems_.push_back({std::move(problem), std::move(why), std::move(suggestion)});
  }
  bool holds(Check check) const { return failures_[static_cast<std::size_t>(check)] == 0; }
  std::vector<Problem>& problems() { return problems_; }

 private:
  std::array<long long, check_count> failures_{};
  std::vector<Problem> problems_;
};

}  // namespace heteroperf
