#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace heteroperf {

struct RungOptions {
  std::uint64_t first_steps = 100;  ///< r: optimizer steps at the first milestone
  std::uint32_t eta = 3;            ///< each budget is eta times the one before; keep 1 / eta
  std::uint32_t rungs = 4;
};

enum class RungVerdict { proceed, stop, finished };

/// Budgets that grow by rung and the rule who gets the next one: asynchronous successive halving,
/// stopping variant (Li et al., MLSys 2020, as in Syne Tune). The decision needs no other trial to
/// finish and no model to move.
class Rungs {
 public:
  /// Throws UserError when a count is 0, eta < 2, or the last milestone overflows 64 bits.
  explicit Rungs(const RungOptions& options);

  std::uint32_t count() const { return options_.rungs; }
  /// r · eta^rung steps since the trial's start.
  std::uint64_t milestone(std::uint32_t rung) const;

  /// Records a trial's result at `rung` and says how it goes on: `finished` at the last rung, else
  /// `proceed` iff it is among the best max(1, ⌊n / eta⌋) of the n recorded there (so the first one
  /// always proceeds). Equal qualities: lower loss first; equal losses: earlier first.
  RungVerdict record(std::uint32_t rung, double quality, double loss);

  /// Results recorded at `rung`.
  std::size_t recorded(std::uint32_t rung) const;

 private:
  RungOptions options_;
  std::vector<std::vector<std::pair<double, double>>>
      results_;  // per rung, (−quality, loss) sorted
};

}  // namespace heteroperf
