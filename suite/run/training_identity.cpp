#include "suite/run/training_identity.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

const IdentityField* find(const TrainingIdentity& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const IdentityField& one) { return one.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except) {
  std::vector<IdentityDifference> found;
  const auto compare = [&](const std::string& name, const std::string& in_a,
                           const std::string& in_b) {
    const bool looked_at = std::find(except.begin(), except.end(), name) == except.end();
    if (looked_at && in_a != in_b) found.push_back({name, in_a, in_b});
  };
  for (const IdentityField& field : a) {
    const IdentityField* other = find(b, field.name);
    compare(field.name, field.value, other == nullptr ? "" : other->value);
  }
  for (const IdentityField& field : b) {
    if (find(a, field.name) == nullptr) compare(field.name, "", field.value);
  }
  return found;
}

}  // namespace heteroperf
