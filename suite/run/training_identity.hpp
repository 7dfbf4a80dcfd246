#pragma once

#include <string>
#include <vector>

namespace heteroperf {

/// What makes two trainings one and the same, whatever the machine and the plan: their losses agree
/// step by step but for rounding.
struct IdentityField {
  std::string name, value;  ///< "graph_hash"; "optimizer": JSON text
  friend bool operator==(const IdentityField&, const IdentityField&) = default;
};
/// Always the same fields in the same order.
using TrainingIdentity = std::vector<IdentityField>;

/// A field that differs.
struct IdentityDifference {
  std::string name, a, b;
};
/// In the order of the fields; those named in `except` are not looked at.
std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except = {});

}  // namespace heteroperf
