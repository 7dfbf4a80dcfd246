#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Forces an algorithm for the sizes [first, last].
struct SelectionRule {
  Algorithm algorithm = Algorithm::native;
  Bytes first{0}, last{~std::uint64_t{0}};
  bool covers(Bytes size) const { return first <= size && size <= last; }
  friend bool operator==(const SelectionRule&, const SelectionRule&) = default;
};

/// Parses "ring", or "recursive_doubling:0-8K;ring:8193-max": sizes in bytes, K/M/G binary, both
/// ends included; "auto" forces nothing. The rules are in ascending order of sizes. Throws
/// UserError with everything wrong: unknown names, empty, reversed or overlapping ranges.
std::vector<SelectionRule> parse_selection(const std::string& text);

struct Choice {
  Algorithm algorithm = Algorithm::native;
  Bytes segment = default_segment;
  std::optional<Seconds> predicted;
  std::string reason;  ///< "forced by rule", "fastest of 7 by the model"
  /// The format of float32 values between clusters: flat algorithms do not encode.
  WireFormat wire = WireFormat::fp32;
};

/// Returns true for leader and split_rail, the algorithms over bridges between clusters.
bool uses_bridges(Algorithm algorithm);

/// Takes the rule that covers the size, else the fastest algorithm by the model, else native. The
/// choice is equal on all ranks when rules and model are. leader and split_rail need more than one
/// cluster: with one, the model is not asked about them, and a rule that demands them throws
/// UserError. A call with segment 0 gets the model's best, or default_segment without a model.
Choice select_all_reduce(const std::vector<SelectionRule>& rules,
                         const std::optional<CostModel>& model, const CallShape& call);

/// select_all_reduce() for calls in a row. Asking the model takes microseconds, so choices are
/// kept.
class Selector {
 public:
  Selector(std::vector<SelectionRule> rules, std::optional<CostModel> model)
      : rules_(std::move(rules)), model_(std::move(model)) {}

  /// The choice is valid until the next call.
  const Choice& choose(const CallShape& call);

 private:
  struct Kept {
    CallShape call;
    std::optional<Choice> choice;
  };

  std::vector<SelectionRule> rules_;
  std::optional<CostModel> model_;
  std::array<Kept, 64> kept_;  ///< by a hash of the call
};

}  // namespace heteroperf
