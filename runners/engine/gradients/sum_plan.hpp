#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/gradients/gradient_sum.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {

/// Parameters of which the same copies exist: those of a stage, or one weight that is tied across
/// stages. Every copy has a summand of their gradients.
struct GradientFamily {
  static constexpr std::size_t untied = ~std::size_t{0};

  /// A replica of a stage, in either direction. `ranks` stand in tensor-parallel order.
  struct Copy {
    StageId stage;
    ReplicaId replica;
    std::vector<RankId> ranks;
  };
  std::vector<StageId> stages;  ///< those that use the parameters; a tied weight's owner first
  std::size_t tied = untied;  ///< index in StagedGraph::tied; `untied` stands for all other weights
  std::vector<Copy> copies;   ///< in the order of summing
  bool is_tied() const { return tied != untied; }

  /// All copies have one tensor-parallel degree: rank i of each holds the same shards.
  bool uniform() const;
  /// The ranks that sum together. A uniform family has one group per tensor index, with the ranks
  /// in the order of the copies; another family has one group of all ranks, copy by copy.
  std::vector<std::vector<RankId>> groups() const;
};

/// The families in the order in which all ranks sum: the last stage first, tied weights at the end.
/// A rank that holds a stage or a weight by several copies takes part once, as the first.
std::vector<GradientFamily> gradient_families(const StagedGraph& staged, const Plan& plan);

/// The groups of several ranks that sum together and that the rank of `world` is in.
class GradientGroups {
 public:
  /// Collective. One split makes as many groups as have no rank in common. Uniform families sum
  /// within `devices`, the same ranks over a library of their GPUs, where it is given.
  GradientGroups(Communicator& world, Communicator* devices,
                 const std::vector<GradientFamily>& families);

  /// The communicator of a group of ranks of a family that is `uniform` or not.
  Communicator& find(const std::vector<RankId>& group, bool uniform) const;
  /// Gives the communicators away. They stay where they are; find() must not be called any more.
  std::vector<std::unique_ptr<Communicator>> release() { return std::move(communicators_); }

 private:
  using Group = std::vector<RankId>;
  /// Makes groups without a common rank by one split and takes them out of `groups`.
  void split_off(Communicator& world, std::vector<Group>& groups, bool on_devices);

  bool has_devices_ = false;
  std::map<std::pair<Group, bool>, Communicator*> places_;  ///< by ranks, and whether on devices
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

/// The sums of one rank, in order, and the elements of its arena that count as its own.
struct SumPlan {
  struct Sum {
    std::unique_ptr<GradientSum> sum;
    std::vector<std::size_t> parameters;  ///< ordinals
  };
  std::vector<Sum> sums;
  std::vector<ArenaRange> owned, counted;
  /// By ordinal: the stages that use the parameter, tied or not.
  std::vector<std::vector<StageId>> users;
  std::vector<bool> tied;  ///< by ordinal
};

/// Plans the sums of `rank` in the order that all ranks share. Buckets hold at least `bucket_bytes`
/// where there is as much. Groups and arenas stay for as long as the sums are used.
SumPlan plan_sums(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan, RankId rank,
                  const ParameterStore& store, const std::vector<GradientFamily>& families,
                  const GradientGroups& groups, std::size_t bucket_bytes);

}  // namespace heteroperf
