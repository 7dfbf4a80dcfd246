#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/cluster/link_curve.hpp"
#include "workloads/graph/sequence_part.hpp"

namespace heteroperf {

using StageId = Id<struct StageTag>;
using ReplicaId = Id<struct ReplicaTag>;    ///< a copy of a stage
using PositionId = Id<struct PositionTag>;  ///< a rank of the pipeline's schedule

/// A stage's backward computes this a second time instead of keeping it: nothing, attention, or the
/// whole stage from its inputs.
enum class Recomputation { none, selective, full };
inline constexpr std::array recomputations{Recomputation::none, Recomputation::selective,
                                           Recomputation::full};
constexpr std::array<const char*, 3> value_names(Recomputation) {
  return {"none", "selective", "full"};
}

/// One copy of a stage. Its ranks share every layer (tensor parallelism of degree `ranks.size()`).
struct StageReplica {
  std::vector<RankId> ranks;     ///< in tensor-parallel order
  std::int64_t micro_batch = 1;  ///< samples it takes of every micro-batch
  std::string device_class;      ///< that all its ranks have; empty: any
  /// 1: a copy of the upward direction of a two-way schedule (chimera, dualpipe), else 0.
  int direction = 0;
  /// Context parallelism: the part of these samples' sequences that it computes. The replicas with
  /// the parts of the same samples follow one another.
  SequencePart part = {};
  friend bool operator==(const StageReplica&, const StageReplica&) = default;

  /// The next replica of its direction takes other samples.
  bool ends_samples() const { return part.index + 1 == part.parts; }
};

/// A piece of the model and who runs it.
///
/// The replicas of one direction split every micro-batch among them: the first takes its first
/// `micro_batch` samples, and so on; those with the parts of one sequence take the same samples.
/// All stages see the same micro-batches, whatever their number of replicas.
struct PlanStage {
  std::vector<std::string> nodes;  ///< names in the model graph, in its order
  IdVector<ReplicaId, StageReplica> replicas;
  Recomputation recomputation = Recomputation::none;
  friend bool operator==(const PlanStage&, const PlanStage&) = default;

  /// The first sample, within a micro-batch, of a replica.
  std::int64_t first_sample(ReplicaId replica) const;
};

/// The format in which activations and gradients travel between two stages.
struct StageWire {
  StageId from, to;  ///< both directions
  WireFormat format = WireFormat::fp32;
  friend bool operator==(const StageWire&, const StageWire&) = default;
};

/// The workload a plan was made for, as `heteroperf run` names it: enough to build its graph again.
struct PlanWorkload {
  std::string name;         ///< "llm"
  std::string size, model;  ///< one of them, or none
  std::string precision = "fp32";
  std::string optimizer;             ///< empty: the workload's own
  std::int64_t sequence_length = 0;  ///< 0: the model's own
  std::int64_t images = 0;           ///< most of a sample; 0: the model's own
  std::string freeze;                ///< components whose weights stay as they are
  friend bool operator==(const PlanWorkload&, const PlanWorkload&) = default;
};

/// Who computes what, in which order: all that a training needs beside the workload.
///
/// Stage s of p·v is segment s of the schedule. The ranks of all replicas of the stages on one
/// place of the pipeline are one position: they run one program.
struct Plan {
  std::string graph_hash;  ///< the model it was made for; empty: any
  std::optional<PlanWorkload> workload;
  std::string
      cluster;  ///< the machine it was made for: a shipped description or a file; may be empty
  std::string schedule = "1f1b";
  int chunks = 1;  ///< v: stages per position and direction
  int micro_batches = 1;
  int zero_stage = 0;  ///< 1: optimizer states are spread over the replicas of a stage
  /// Tensor-parallel ranks do norms and sums between their layers by rows (row_cuts.hpp).
  bool sequence_parallel = false;
  IdVector<StageId, PlanStage> stages;
  std::vector<StageWire> wires;  ///< others: fp32
  /// By position: forwards before its first backward, never fewer than positions follow. Empty: the
  /// schedule's own. For `1f1b` in one direction and with one chunk alone.
  IdVector<PositionId, int> warm_up;
  /// By rank: the rank of the cluster that it is; the others of the cluster are left idle. Empty:
  /// rank r is the cluster's rank r.
  std::vector<RankId> devices;
  /// Rates that its maker knew better than the cluster's description (profiles, runs); its
  /// predictions are made with it. Empty: nothing.
  EfficiencyMatrix efficiency;

  /// The number of ranks: one more than the largest.
  int ranks() const;
  /// Samples of one micro-batch over all replicas of a stage's first direction.
  std::int64_t micro_batch_samples() const;
  /// Samples of one optimizer step.
  std::uint64_t samples_per_step() const;
  WireFormat wire(StageId from, StageId to) const;
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Notes a ZeRO stage that there is not.
void check_zero_stage(int zero_stage, ProblemList& problems);

}  // namespace heteroperf
