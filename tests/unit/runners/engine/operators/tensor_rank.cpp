#include "tests/unit/runners/engine/operators/tensor_rank.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "metrics/base/id.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// Gradients of one stage: every operator's inputs are slots by node.
class StageSink final : public GradientSink {
 public:
  StageSink(std::map<std::int32_t, at::Tensor>& slots, const OperatorGroup& group, NodeId sample)
      : slots_(slots), group_(group), inputs_(group.inputs), sample_(sample) {}

  bool wanted(std::size_t input) const override {
    return input < inputs_.size() && inputs_[input] != sample_ && group_.gives_gradient(input);
  }
  at::Tensor reusable(std::size_t) override { return {}; }
  void put(std::size_t input, at::Tensor gradient) override {
    at::Tensor& slot = slots_[inputs_.at(input).value()];
    slot = slot.defined() ? slot + gradient : gradient;
  }
  void replace(std::size_t input, at::Tensor gradient) override {
    slots_[inputs_.at(input).value()] = std::move(gradient);
  }

 private:
  std::map<std::int32_t, at::Tensor>& slots_;
  const OperatorGroup& group_;
  const std::vector<NodeId>& inputs_;
  NodeId sample_;
};

class Runner {
 public:
  Runner(const TensorShard& shard, const ReferenceModel& reference, const PassForm& form,
         Communicator& group)
      : shard_(shard), graph_(shard.graph), reference_(reference), form_(form), group_(group) {
    const StageId last = *std::max_element(form.stage_of.begin(), form.stage_of.end());
    for (StageId s; s <= last; ++s) {
      Stage& stage = stages_.emplace_back();
      const GroupingRules rules{&form.stage_of, s, &shard, &group};
      stage.groups = make_operator_groups(graph_, form.type, form.fusion, rules);
      stage.partial = gradient_is_partial_within(shard, form.stage_of, s);
      stage.saved.resize(stage.groups.size());
      for (const OperatorGroup& one : stage.groups) add_parameters(stage, one);
    }
  }

  RankPass run(const at::Tensor& sample, const at::Tensor& targets, const PassContext& context) {
    context_ = context;
    values_[graph_.input().value()] = sample;
    for (Stage& stage : stages_) forward(stage, targets);
    result_.loss = values_.at(graph_.loss().value()).clone();
    count_right_predictions(targets);
    received_[graph_.loss().value()] = at::ones_like(result_.loss);
    for (std::size_t s = stages_.size(); s-- > 0;) backward(stages_[s]);
    return std::move(result_);
  }

 private:
  struct Stage {
    std::vector<OperatorGroup> groups;
    std::vector<Tensors> parameters, saved;
    std::vector<bool> partial;
  };

  void add_parameters(Stage& stage, const OperatorGroup& one) {
    Tensors& tensors = stage.parameters.emplace_back();
    for (const auto& [node, index] : one.parameters) {
      const at::Tensor full = reference_.parameter(node, index).detach().to(form_.type);
      tensors.push_back(cut(full, shard_.parameters[node.index()][index])
                            .clone(parameter_format(graph_.node(node), index)));
    }
  }

  at::Tensor summed(const at::Tensor& values) {
    at::Tensor sum = values.clone(at::MemoryFormat::Contiguous);
    group_.all_reduce(buffer_of(sum));
    return sum;
  }

  void forward(Stage& stage, const at::Tensor& targets) {
    for (std::size_t g = 0; g < stage.groups.size(); ++g) {
      const OperatorGroup& one = stage.groups[g];
      const NodeId node = one.nodes.back();
      Tensors inputs;
      for (const NodeId id : one.inputs) inputs.push_back(values_.at(id.value()));
      if (node == graph_.loss()) inputs.push_back(targets);
      context_.node = node.value();
      at::Tensor output = one.op->forward(inputs, stage.parameters[g], stage.saved[g], context_);
      if (shard_.output_is_partial[node.index()]) output = summed(output);
      values_[node.value()] = output;
    }
  }

  void count_right_predictions(const at::Tensor& targets) {
    const NodeId logits = graph_.node(graph_.loss()).inputs[0];
    const at::Tensor& values = values_.at(logits.value());
    result_.right = shard_.output_is_sharded[logits.index()]
                        ? count_right(values, targets,
                                      shard_.first_of_vocabulary[graph_.loss().index()], group_)
                        : count_right(values, targets);
  }

  void backward(Stage& stage) {
    std::map<std::int32_t, at::Tensor> slots;
    std::vector<at::Tensor> output_gradients(stage.groups.size());
    for (std::size_t g = stage.groups.size(); g-- > 0;) {
      const OperatorGroup& one = stage.groups[g];
      const at::Tensor dy = taken(stage, slots, one.nodes.back());
      result_.outputs[one.nodes.back().value()] = dy.clone();
      output_gradients[g] = dy;
      StageSink sink(slots, one, graph_.input());
      if (form_.gradients == Gradients::together) {
        write_parameters(stage, g, [&](Tensors& gradients) {
          one.op->backward(dy, stage.parameters[g], stage.saved[g], context_, sink, gradients);
        });
      } else {
        context_.node = one.nodes.back().value();
        one.op->input_gradient(dy, stage.parameters[g], stage.saved[g], context_, sink);
      }
    }
    for (std::size_t g = stage.groups.size(); g-- > 0;) {
      if (form_.gradients == Gradients::together || stage.groups[g].parameters.empty()) continue;
      write_parameters(stage, g, [&](Tensors& gradients) {
        stage.groups[g].op->weight_gradient(output_gradients[g], stage.saved[g], context_,
                                            gradients);
      });
    }
    send_back(stage, slots);
  }

  /// What this stage's consumers gave, summed where they gave summands, and what came back.
  at::Tensor taken(const Stage& stage, std::map<std::int32_t, at::Tensor>& slots, NodeId node) {
    at::Tensor gradient = slots[node.value()];
    slots.erase(node.value());
    if (stage.partial[node.index()]) gradient = summed(gradient);
    const at::Tensor& back = received_[node.value()];
    if (!back.defined()) return gradient;
    return gradient.defined() ? gradient + back : back;
  }

  void send_back(const Stage& stage, std::map<std::int32_t, at::Tensor>& slots) {
    for (const auto& [node, values] : slots) {
      const at::Tensor gradient =
          stage.partial[static_cast<std::size_t>(node)] ? summed(values) : values;
      at::Tensor& back = received_[node];
      back = back.defined() ? back + gradient : gradient;
    }
  }

  template <class Pass>
  void write_parameters(Stage& stage, std::size_t g, const Pass& pass) {
    const OperatorGroup& one = stage.groups[g];
    bool add = false;
    for (const auto& [node, index] : one.parameters) {
      add = add || result_.parameters.count({node.value(), index}) != 0;
    }
    Tensors gradients;
    for (std::size_t i = 0; i < one.parameters.size(); ++i) {
      const auto& [node, index] = one.parameters[i];
      at::Tensor& buffer = result_.parameters[{node.value(), index}];
      if (!buffer.defined()) buffer = at::full_like(stage.parameters[g][i], add ? 0.0 : -99.0);
      gradients.push_back(buffer);
    }
    context_.node = one.nodes.back().value();
    context_.accumulation = add ? Accumulation::add : Accumulation::overwrite;
    pass(gradients);
  }

  const TensorShard& shard_;
  const ModelGraph& graph_;
  const ReferenceModel& reference_;
  const PassForm& form_;
  Communicator& group_;
  std::vector<Stage> stages_;
  std::map<std::int32_t, at::Tensor> values_, received_;
  PassContext context_;
  RankPass result_;
};

}  // namespace

at::Tensor cut(const at::Tensor& full, const ParameterShard& shard) {
  if (shard.whole()) return full;
  Tensors parts;
  for (const ParameterShard::Interval& interval : shard.intervals) {
    parts.push_back(
        full.narrow(static_cast<std::int64_t>(shard.dim), interval.first, interval.count));
  }
  return at::cat(parts, static_cast<std::int64_t>(shard.dim));
}

void paste(const at::Tensor& part, const ParameterShard& shard, const at::Tensor& full) {
  const auto dim = static_cast<std::int64_t>(shard.dim);
  std::int64_t first = 0;
  for (const ParameterShard::Interval& interval : shard.intervals) {
    full.narrow(dim, interval.first, interval.count).copy_(part.narrow(dim, first, interval.count));
    first += interval.count;
  }
}

RankPass run_rank(const TensorShard& shard, const ReferenceModel& reference, const PassForm& form,
                  Communicator& group, const at::Tensor& sample, const at::Tensor& targets,
                  const PassContext& context) {
  return Runner(shard, reference, form, group).run(sample, targets, context);
}

}  // namespace heteroperf
