#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "workloads/graph/sequence_part.hpp"

namespace heteroperf {

/// A plan's shape in one line: "pp 2 x tp 1 x dp 1, 1f1b, 8 micro-batches of 4".
struct PlanShape {
  std::size_t positions = 1;           ///< in the pipeline
  std::set<std::size_t> tensor, data;  ///< degrees of all stages
  std::set<std::int32_t> context;
  std::string schedule;
  std::int64_t chunks = 1, micro_batches = 1;
  std::set<std::int64_t> batches;  ///< samples of a micro-batch on one replica
  std::string line() const;
};

/// A stage that a rank computes, and which it is of the ranks that share its layers.
struct HeldStage {
  std::int32_t stage = 0, tensor_index = 0, tensor_degree = 1;
};
/// The part of a model that a rank holds, "stages 0,2; tensor 1 of 2"; empty: all of it.
std::string share_text(const std::vector<HeldStage>& held, std::size_t stages_of_plan);

/// One copy of a stage.
struct OutlinedReplica {
  std::vector<std::int32_t> ranks;  ///< in tensor-parallel order
  std::int64_t micro_batch = 0;     ///< samples that it takes of every micro-batch
  std::string device_class;         ///< empty: the plan does not say
  std::int32_t direction = 0;       ///< 1: upward, of a two-way schedule
  /// The part of these samples' sequences that it computes.
  std::int32_t part = 0, parts = 1;
  SequenceOrder order = SequenceOrder::zig_zag;
  /// Its part has as many positions as the others'.
  bool equals_other_parts() const { return order != SequenceOrder::patches; }
  /// The next replica takes other samples.
  bool ends_samples() const { return part + 1 == parts; }
};
using OutlinedStage = std::vector<OutlinedReplica>;

/// Where a plan has a rank.
struct OutlinedRank {
  std::int32_t group = -1;             ///< the first that it is in; -1: none
  std::int32_t position = -1;          ///< in the pipeline
  std::size_t stage = 0, replica = 0;  ///< the first copy that it belongs to, where it holds one
  std::vector<HeldStage> held;         ///< downward stages first, each direction in its order
};

/// As much of a journal's `plan` line as other lines can be held to: the stages of a fixed model,
/// or the groups of a search.
struct PlanOutline {
  bool of_search = false;
  std::vector<std::vector<std::int32_t>> groups;  ///< ranks that train one model together
  std::string graph_hash;                         ///< empty: of any model
  std::string workload, size, precision, optimizer, schedule, freeze;
  std::int64_t sequence_length = 0;  ///< 0: not of tokens
  std::int64_t images = 0;           ///< most of a sample; 0: the model's own
  std::int64_t chunks = 1, micro_batches = 0;
  std::vector<OutlinedStage> stages;            ///< none in a search
  std::map<std::int32_t, OutlinedRank> places;  ///< by rank

  PlanShape shape() const;
  /// Samples of one micro-batch over the replicas of a stage in one direction; looks at them all.
  std::int64_t micro_batch_samples(std::size_t stage, std::int32_t direction) const;
  std::uint64_t samples_per_step() const;
  /// The place of a rank; without a group or a stage where the plan does not have it.
  const OutlinedRank& place_of(std::int32_t rank) const;
  const std::vector<HeldStage>& stages_of(std::int32_t rank) const { return place_of(rank).held; }
  /// The first copy that the rank belongs to; null for none.
  const OutlinedReplica* replica_of(std::int32_t rank) const;
};

/// Throws UserError with what is wrong with it.
PlanOutline read_plan_outline(const std::string& text);

}  // namespace heteroperf
