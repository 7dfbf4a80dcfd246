#pragma once

#include <cstddef>
#include <vector>

#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {

/// Parameters of which the same copies exist: those of a stage, or one weight that is tied across
/// stages. Every copy has a summand of their gradients.
struct GradientFamily {
  static constexpr std::size_t untied = ~std::size_t{0};

  /// A replica of a stage, in either direction. `ranks` in tensor-parallel order.
  struct Copy {
    int stage = 0, replica = 0;
    std::vector<RankId> ranks;
  };
  int stage = 0;              ///< of the parameters; a tied weight's owner
  std::size_t tied = untied;  ///< of StagedGraph::tied; else all that are not tied
  std::vector<Copy> copies;   ///< in the order of summing
  bool is_tied() const { return tied != untied; }

  /// All copies have one tensor-parallel degree: rank i of each holds the same shards.
  bool uniform() const;
  /// Who sums together. Uniform: by tensor index, the ranks by copy; else all ranks, copy by copy.
  std::vector<std::vector<RankId>> groups() const;
};

/// In the order in which all ranks sum: the last stage first, its gradients being final first; tied
/// weights at the end. A rank that holds a stage or a weight by several copies takes part once, as
/// the first.
std::vector<GradientFamily> gradient_families(const StagedGraph& staged, const Plan& plan);

}  // namespace heteroperf
