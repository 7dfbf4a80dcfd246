#pragma once

#include <map>

#include "runners/engine/operators/operator_group.hpp"
#include "tests/unit/runners/engine/reference_model.hpp"

namespace heteroperf {

enum class Offer { nothing, in_place };

/// Keeps the gradients of one operator's inputs, one slot per distinct node among `nodes` (inputs
/// beyond them have none). With Offer::in_place operators may add to what is in a slot.
class CheckedSink final : public GradientSink {
 public:
  CheckedSink(const std::vector<NodeId>& nodes, std::vector<bool> wanted, Offer offer);

  /// What input `input`'s slot holds before the pass.
  void start(std::size_t input, at::Tensor gradient) { slot(input) = std::move(gradient); }

  bool wanted(std::size_t input) const override { return wanted_.at(input); }
  at::Tensor reusable(std::size_t input) override;
  void put(std::size_t input, at::Tensor gradient) override;
  void replace(std::size_t input, at::Tensor gradient) override;
  const at::Tensor& gradient(std::size_t input) const { return slots_.at(nodes_.at(input)); }

 private:
  at::Tensor& slot(std::size_t input) { return slots_[nodes_.at(input)]; }

  std::vector<std::int32_t> nodes_;
  std::vector<bool> wanted_;
  std::map<std::int32_t, at::Tensor> slots_;
  Offer offer_;
};

struct CheckSettings {
  at::ScalarType type = at::kDouble;
  Fusion fusion = Fusion::off;
  std::int64_t batch = 3;
  std::uint64_t seed = 1;
  double tolerance = 1e-10;
  double loss_scale = 1.0;
  std::int64_t uncounted = 0;  ///< rows without a target
};

/// Holds every group of `graph` alone against LibTorch's autograd on random inputs, parameters and
/// output gradients: forward, evaluation, B, W, both at once, adding to gradients of parameters and
/// of inputs, gradient buffers and weights in their preferred and in plain memory format.
/// The reference computes in float64 whatever the operators' type.
void check_groups(const ModelGraph& graph, const CheckSettings& settings);

/// What one training pass of all groups leaves behind.
struct ModelGradients {
  at::Tensor loss;
  std::map<std::pair<std::int32_t, std::size_t>, at::Tensor> parameters;
  std::map<std::int32_t, Tensors> buffers;  ///< by last node of the group
};

/// Runs the groups of `graph` forward and backward with the reference's parameters, cast to `type`.
ModelGradients run_model(const ModelGraph& graph, const ReferenceModel& reference,
                         at::ScalarType type, Fusion fusion, const at::Tensor& sample,
                         const at::Tensor& targets, const PassContext& context = {});

}  // namespace heteroperf
