#pragma once

#include <string>
#include <vector>

namespace heteroperf {

/// What makes two trainings one and the same, whatever the machine and the plan: their losses agree
/// step by step but for rounding.
struct IdentityField {
  std::string name, value;  ///< "graph_hash", "optimizer.learning_rate", …
  friend bool operator==(const IdentityField&, const IdentityField&) = default;
};
using TrainingIdentity = std::vector<IdentityField>;

/// A field that differs, or that one of them lacks (empty).
struct IdentityDifference {
  std::string name, a, b;
};
/// In the order of a's fields, then those of b alone; those named in `except` are not looked at.
std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except = {});

}  // namespace heteroperf
