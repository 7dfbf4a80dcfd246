// The fingerprint of the first losses of a run: a hash over the numbers and the exact bits of the
// losses of its first steps. Two runs that compute the same sums in the same order have equal
// fingerprints; a single changed rounding gives another one. Only a fixed model trained by one
// group has such a sequence.
#include "results/journal/loss_fingerprint.hpp"

#include <cmath>

#include "metrics/base/hash.hpp"

namespace heteroperf {

std::optional<std::string> loss_fingerprint(const std::vector<const StepEvent*>& steps) {
  if (steps.size() < fingerprint_steps) return std::nullopt;
  Hash128 hash;
  for (std::size_t i = 0; i < fingerprint_steps; ++i) {
    const StepEvent& step = *steps[i];
    const bool alone = !step.trial && step.group == 0;
    if (!alone || step.n != steps.front()->n + i || !std::isfinite(step.loss)) return std::nullopt;
    hash.update(step.n).update(step.loss);
  }
  return hash.hex();
}

}  // namespace heteroperf
