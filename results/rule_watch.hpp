#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "results/ruleset.hpp"

namespace heteroperf {

/// Judges a run while it goes on, by the rules that single lines and their neighbours can tell
/// (`Moment::steps`). Keeps few lines, so that a long run costs no more than a short one; what it
/// misses, the record tells. Usable from any thread.
class RuleWatch {
 public:
  void see(std::int64_t t_ns, const Event& event);
  /// Rules that do not hold and that no call told of before.
  std::vector<Reason> judge();

 private:
  void forget_old_lines();

  std::mutex mutex_;
  Journal recent_;
  std::set<std::string> told_;
};

}  // namespace heteroperf
