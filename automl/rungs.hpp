#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace heteroperf {

struct RungOptions {
  std::uint64_t first_steps = 100;  ///< r, the optimizer steps at the first milestone
  std::uint32_t eta = 3;            ///< factor between budgets; about 1 / eta of the trials go on
  std::uint32_t rungs = 4;
};

enum class RungVerdict { proceed, stop, finished };

/// Budgets that grow by rung, and the rule that says which trials get the next one: asynchronous
/// successive halving, stopping variant (Li et al., MLSys 2020, as in Syne Tune). A *rung* is a
/// level of training, its *milestone* the number of steps at which trials are compared. The
/// decision needs no other trial to finish and no model to move.
class Rungs {
 public:
  /// No count is 0 and eta is above 1. Throws UserError when the last milestone overflows 64 bits.
  explicit Rungs(const RungOptions& options);

  std::uint32_t count() const { return static_cast<std::uint32_t>(milestones_.size()); }
  /// Returns r · eta^rung steps since the trial's start.
  std::uint64_t milestone(std::uint32_t rung) const;

  /// Records a trial's result at `rung` and says how the trial goes on: `finished` at the last
  /// rung, else `proceed` iff it is among the best max(1, ⌊n / eta⌋) of the n recorded there (so
  /// the first one always proceeds). Of equal qualities the lower loss is better, of equal losses
  /// the earlier.
  RungVerdict record(std::uint32_t rung, double quality, double loss);

  /// Returns the number of results recorded at `rung`.
  std::size_t recorded(std::uint32_t rung) const { return results_.at(rung).size(); }

 private:
  std::uint32_t eta_;
  std::vector<std::uint64_t> milestones_;
  /// Holds sorted pairs (−quality, loss) per rung.
  std::vector<std::vector<std::pair<double, double>>> results_;
};

}  // namespace heteroperf
