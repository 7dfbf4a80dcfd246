#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runners/plan/search/problem/layer_sums.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// Constraints that a StageRelaxation counts beside whole layers and samples.
struct RelaxationTerms {
  bool filling = true, sums = true, memory = true;
  /// A stage keeps as many micro-batches as stages follow, and its own: so `1f1b`, `zb-h1`,
  /// `zb-h2`.
  bool counts = false;
};

/// Least step time of plans of one stage per position, with devices divisible: what every plan must
/// afford.
///
/// The relaxation asks for a step of T seconds and micro-batches of m samples. A stage of layers
/// [i, j) begins after one micro-batch has come through layers 0 … i−1, and sums and updates its
/// parameters after its last pass; what is left of T over the number of micro-batches is its
/// period. A replica of degree d of pool p takes at most k samples of these layers in a period, and
/// within its memory, so that m samples cost at least m · min d π_p / k, for any prices π of
/// devices. Where the cheapest cuts cost more than all devices, no plan takes T or less (Lagrange
/// duality).
class StageRelaxation {
 public:
  /// The problem outlives it and has passed check_problem().
  StageRelaxation(const PlanningProblem& problem, const RelaxationTerms& terms);

  /// The least T between `least_s` > 0 and `most_s`, from below to the part `accuracy`; `most_s`
  /// (which may be infinite) where none will do.
  double bound(double least_s, double most_s, double accuracy);

 private:
  /// Replicas of one pool and degree that take so many samples of a micro-batch.
  struct Choice {
    int pool = 0, degree = 0;
    std::int64_t samples = 1;
    std::array<std::vector<double>, 3> seconds;  ///< [recomputation][layer]: of those before it
    /// [layer]: of it alone, of these samples or more; infinite where they have no memory for it.
    std::vector<double> least_s;
    std::size_t next = 0;  ///< the first choice of another pool or degree
  };
  /// The time that a step of T leaves.
  struct Step {
    double seconds = 0;
    std::int64_t samples = 1, micro_batches = 1;
    int followers = 0;  ///< stages that are known to follow the one at hand
  };
  /// Micro-batches of so many samples: no step of as much or less has them.
  struct SizeBound {
    std::int64_t samples = 1;
    double impossible_s = 0;
    std::vector<double> prices;  ///< the ones that gave the highest bound
  };
  /// Where the cheapest stages to cover the layers from one on end, and of which choice they are.
  struct Cover {
    double cost = 0;
    int end = -1, choice = -1;
    std::size_t rest = 0;  ///< which list has the cover of the layers from `end` on
  };
  void add_choices();
  void add_samples(int pool, int degree);
  void set_least(std::size_t first);
  void set_heads();
  void set_links();
  /// False is a proof that no plan takes the step; true says only that no proof was found.
  bool is_possible(const Step& step);
  using Cost = double (StageRelaxation::*)(const Step& step, std::vector<double>& used);
  /// Prices are changed so often, each time by less.
  struct PriceRounds {
    int count = 1;
    double decay = 1;
  };
  /// Asks `least` for the cheapest cuts at changing prices; false where they cost more than all
  /// devices.
  bool is_afforded(const Step& step, Cost least, PriceRounds rounds);
  double least_cost(const Step& step, std::vector<double>& used);
  /// least_cost() with the number of stages that follow each stage; slower and tighter.
  double least_counted_cost(const Step& step, std::vector<double>& used);
  using Covers = std::vector<Cover>;  ///< [layer]
  enum class MoreStages { one, any };
  Covers covers(const std::vector<Covers>& lists, MoreStages more, const std::vector<double>& most,
                const Step& step);
  std::vector<double> least_costs_before(const Step& step) const;
  bool takes(const Choice& choice, LayerSums::Range range, const Step& step) const;
  /// Seconds of the sums over replicas and of the optimizer after a stage's last pass, at the
  /// least.
  double after_work(const Choice& choice, LayerSums::Range range, const Step& step) const;
  /// True when the range's states and kept tensors, at their least, fit the choice's devices.
  bool has_memory(const Choice& choice, LayerSums::Range range, double period_s, const Step& step,
                  Recomputation recomputation) const;
  /// Devices that a stage takes when all its replicas are of this choice; fractional.
  double devices(const Choice& choice, const Step& step) const;
  std::vector<double> seconds_of(const Choice& choice, std::size_t recomputation) const;
  std::vector<std::int64_t> micro_batch_sizes() const;
  bool is_any_possible(double seconds, std::vector<SizeBound>& sizes);

  const PlanningProblem& problem_;
  RelaxationTerms terms_;
  LayerSums sums_;
  std::vector<Choice> choices_;
  std::vector<double> ways_;       ///< [layer]: through all before it and back
  std::vector<double> heads_;      ///< [layer]: a sample's way to it
  std::vector<double> replica_s_;  ///< [layer]: of layers before it, per sample on any replica
  std::vector<std::array<double, 2>> links_;  ///< [pool]: latency, seconds per byte, at best
  std::vector<double> prices_;
  int devices_ = 0;  ///< in all pools
};

}  // namespace heteroperf
