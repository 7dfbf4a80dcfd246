#pragma once

#include <map>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/operator_group.hpp"
#include "tests/unit/runners/engine/reference_model.hpp"

namespace heteroperf {

using ParameterKey = std::pair<std::int32_t, std::size_t>;

/// What one training pass of one tensor-parallel rank leaves behind.
struct RankPass {
  at::Tensor loss;
  std::uint64_t right = 0;                        ///< predictions
  std::map<ParameterKey, at::Tensor> parameters;  ///< gradients, of the rank's own parts
  std::map<std::int32_t, at::Tensor> outputs;     ///< gradients of the groups' outputs, as used
};

enum class Gradients { together, apart };

/// How a pass is put together.
struct PassForm {
  at::ScalarType type = at::kDouble;
  Fusion fusion = Fusion::on;
  Gradients gradients = Gradients::together;  ///< apart: B of a stage, then its W
  std::vector<StageId> stage_of;              ///< by node; contiguous
};

/// The part of a full tensor that a shard names, and back.
at::Tensor cut(const at::Tensor& full, const ParameterShard& shard);
void paste(const at::Tensor& part, const ParameterShard& shard, const at::Tensor& full);

/// Runs all stages of one rank's local graph after each other, as an executor would: sums over
/// `group` where the shard says so, gradients between stages summed in the stage they come from.
RankPass run_rank(const TensorShard& shard, const ReferenceModel& reference, const PassForm& form,
                  Communicator& group, const at::Tensor& sample, const at::Tensor& targets,
                  const PassContext& context);

}  // namespace heteroperf
