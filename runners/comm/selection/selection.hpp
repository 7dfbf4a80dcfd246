#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Sizes [first, last] of a forced algorithm.
struct SelectionRule {
  Algorithm algorithm = Algorithm::native;
  Bytes first{0}, last{~std::uint64_t{0}};
  bool covers(Bytes size) const { return first <= size && size <= last; }
  friend bool operator==(const SelectionRule&, const SelectionRule&) = default;
};

/// "ring", or "recursive_doubling:0-8K;ring:8193-max": sizes in bytes, K/M/G binary, both ends
/// included; "auto" forces nothing. In ascending order of sizes. Throws UserError with everything
/// wrong: unknown names, empty, reversed or overlapping ranges.
std::vector<SelectionRule> parse_selection(const std::string& text);

struct Choice {
  Algorithm algorithm = Algorithm::native;
  Bytes segment = default_segment;
  std::optional<Seconds> predicted;
  std::string reason;  ///< "forced by rule", "fastest of 7 by the model"
  /// What float32 values are between clusters: flat algorithms do not encode.
  WireFormat wire = WireFormat::fp32;
};

/// leader and split_rail: the algorithms with bridges.
bool uses_bridges(Algorithm algorithm);

/// The rule that covers the size, else the fastest by the model, else native. Equal on all ranks
/// when rules and model are. leader and split_rail need more than one cluster: the model is not
/// asked about them with one, and a rule that demands them throws UserError. A call with segment 0
/// gets the model's best, default_segment without a model.
Choice select_all_reduce(const std::vector<SelectionRule>& rules,
                         const std::optional<CostModel>& model, const CallShape& call);

/// select_all_reduce() for calls in a row: asking the model takes microseconds, so choices made
/// are kept.
class Selector {
 public:
  Selector(std::vector<SelectionRule> rules, std::optional<CostModel> model)
      : rules_(std::move(rules)), model_(std::move(model)) {}

  /// Valid until the next call.
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
