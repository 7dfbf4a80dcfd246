#include "suite/run/training_identity.hpp"

#include <algorithm>

#include "metrics/error.hpp"

namespace heteroperf {

std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except) {
  HETEROPERF_EXPECT(a.size() == b.size());
  std::vector<IdentityDifference> found;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool looked_at = std::find(except.begin(), except.end(), a[i].name) == except.end();
    if (looked_at && a[i] != b[i]) found.push_back({a[i].name, a[i].value, b[i].value});
  }
  return found;
}

}  // namespace heteroperf
