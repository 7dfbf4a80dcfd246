#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "results/record/ruleset.hpp"

namespace heteroperf {

/// The rules that are against a run as it stands, or only against its set-up, which its record does
/// not judge.
struct RuleNews {
  Reason reason;
  bool of_setup = false;
};

/// Judges a run while it goes on, by the rules that single lines and their neighbours can tell
/// (`Moment::steps`). Keeps few lines, so that a long run costs no more than a short one; what it
/// misses, the record tells. Usable from any thread.
class RuleWatch {
 public:
  void see(std::int64_t t_ns, const Event& event);
  /// Rules that do not hold and that no call told of before. Load and heat of the
  /// set-up are told apart from those since the first step.
  std::vector<RuleNews> judge();

 private:
  void forget_setup();
  void forget_old_lines();

  std::mutex mutex_;
  Journal recent_;
  bool has_step_ = false;
  std::set<std::string> told_, told_of_setup_;
};

}  // namespace heteroperf
