#include "tests/unit/runners/engine/operators/operator_check.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "metrics/base/random.hpp"

namespace heteroperf {

CheckedSink::CheckedSink(const std::vector<NodeId>& nodes, std::vector<bool> wanted, Offer offer)
    : wanted_(std::move(wanted)), offer_(offer) {
  for (const NodeId node : nodes) nodes_.push_back(node.value());
}

at::Tensor CheckedSink::reusable(std::size_t input) {
  return offer_ == Offer::in_place && wanted_.at(input) ? slot(input) : at::Tensor();
}

void CheckedSink::put(std::size_t input, at::Tensor gradient) {
  EXPECT_TRUE(wanted_.at(input)) << "a gradient for input " << input << ", which wants none";
  slot(input) = slot(input).defined() ? slot(input) + gradient : gradient;
}

void CheckedSink::replace(std::size_t input, at::Tensor gradient) {
  EXPECT_EQ(gradient.data_ptr(), slot(input).data_ptr());
  slot(input) = gradient;
}

namespace {

/// One group with its random surroundings.
class GroupCheck {
 public:
  GroupCheck(const ModelGraph& graph, OperatorGroup group, const CheckSettings& settings)
      : graph_(graph), group_(std::move(group)), s_(settings) {
    for (const NodeId id : group_.nodes) name_ += (name_.empty() ? "" : "+") + graph.node(id).name;
    context_.seed = 7;
    context_.step = 3;
    context_.first_sample = 5;
    context_.node = group_.nodes.back().value();
    context_.loss_scale = s_.loss_scale;
    make_inputs();
    if (is_loss() && s_.uncounted > 0) {
      const at::Tensor& rows = inputs_[0];
      context_.targets = rows.numel() / rows.size(-1) - s_.uncounted;
    }
    make_parameters();
    run_reference();
  }

  void run() {
    SCOPED_TRACE(fmt::format("group {} seed {}", name_, s_.seed));
    for (const auto format : {Format::preferred, Format::plain}) {
      format_ = format;
      check_split();
      check_together(Accumulation::overwrite, Offer::nothing);
      check_together(Accumulation::add, Offer::in_place);
      check_unwanted();
    }
    check_evaluation();
  }

 private:
  enum class Format { preferred, plain };

  std::uint64_t seed(std::uint64_t salt) const { return random_bits(s_.seed, salt); }
  const Attributes& last_kind() const { return graph_.node(group_.nodes.back()).attributes; }
  bool is_loss() const { return heteroperf::is_loss(last_kind()); }

  /// The first input that is the same node.
  std::size_t first_use(std::size_t input) const {
    for (std::size_t i = 0; i < input && i < group_.inputs.size(); ++i) {
      if (input < group_.inputs.size() && group_.inputs[i] == group_.inputs[input]) return i;
    }
    return input;
  }

  void make_inputs() {
    for (const NodeId id : group_.inputs) {
      const Node& node = graph_.node(id);
      const std::size_t first = first_use(inputs_.size());
      if (first != inputs_.size()) {
        inputs_.push_back(inputs_[first]);
        wanted_.push_back(wanted_[first]);
        continue;
      }
      const auto* sample = std::get_if<Input>(&node.attributes);
      const bool tokens = sample != nullptr && sample->kind == InputKind::tokens;
      const std::int64_t batch = node.items ? rows_to_insert() / node.output[0] : s_.batch;
      inputs_.push_back(
          tokens ? random_input(graph_, id, batch, s_.type, seed(inputs_.size()))
                 : random_tensor(batched(batch, node.output), s_.type, seed(inputs_.size())));
      wanted_.push_back(!tokens);
    }
    if (!takes_targets(last_kind())) return;
    inputs_.push_back(random_targets(graph_, s_.batch, seed(99), s_.uncounted));
    wanted_.push_back(false);
  }

  /// The rows of items that the tokens, which are drawn before them, have places for. Places that
  /// are no whole item get another token.
  std::int64_t rows_to_insert() {
    const auto* insert = std::get_if<InsertTokens>(&last_kind());
    if (insert == nullptr) return s_.batch;
    const at::Tensor tokens = inputs_.at(1).view({-1});
    const std::int64_t rows = graph_.node(group_.inputs.at(2)).output[0];
    std::int64_t places = tokens.eq(insert->token).sum().item<std::int64_t>();
    for (std::int64_t i = 0; places % rows != 0; ++i) {
      if (tokens[i].item<std::int64_t>() != insert->token) continue;
      tokens[i].fill_(insert->token + 1);
      --places;
    }
    return places;
  }

  void make_parameters() {
    const ReferenceModel source(graph_, s_.type, seed(100));
    for (const auto& [node, index] : group_.parameters) {
      parameters_.push_back(source.parameter(node, index).detach());
    }
  }

  // In float64 whatever the operator's type, from the operator's rounded values.
  void run_reference() {
    Tensors leaves, parameter_leaves;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::size_t first = first_use(i);
      leaves.push_back(first < i ? leaves[first] : leaf(inputs_[i], wanted_[i]));
    }
    for (const at::Tensor& p : parameters_) parameter_leaves.push_back(leaf(p, true));
    const at::Tensor y = chain(leaves, parameter_leaves, context_, running_);
    output_ = y.detach();
    output_gradient_ = is_loss() ? at::ones({1}, output_.options().dtype(accumulated()))
                                 : random_tensor(y.sizes(), s_.type, seed(101));
    const double scale = is_loss() ? s_.loss_scale : 1.0;
    y.backward(output_gradient_.to(at::kDouble) * scale);
    for (const at::Tensor& x : leaves) input_gradients_.push_back(x.grad());
    for (const at::Tensor& p : parameter_leaves) parameter_gradients_.push_back(p.grad());
  }

  at::ScalarType accumulated() const { return s_.type == at::kDouble ? at::kDouble : at::kFloat; }

  static at::Tensor leaf(const at::Tensor& value, bool differentiable) {
    if (!differentiable) return value;
    return value.to(at::kDouble, false, true).requires_grad_();
  }

  at::Tensor chain(const Tensors& inputs, const Tensors& parameters, const PassContext& context,
                   Tensors& running) const {
    std::map<std::int32_t, at::Tensor> values;
    for (std::size_t i = 0; i < group_.inputs.size(); ++i) {
      values[group_.inputs[i].value()] = inputs[i];
    }
    std::size_t next_parameter = 0;
    at::Tensor y;
    for (const NodeId id : group_.nodes) {
      const Node& node = graph_.node(id);
      Tensors in, own;
      for (const NodeId input : node.inputs) in.push_back(values.at(input.value()));
      if (takes_targets(node.attributes)) in.push_back(inputs.back());
      const auto* linear = std::get_if<Linear>(&node.attributes);
      const std::size_t count =
          node.parameters.size() + (linear != nullptr && !linear->tied_to.empty() ? 1 : 0);
      for (std::size_t i = 0; i < count; ++i) own.push_back(parameters.at(next_parameter++));
      if (std::holds_alternative<BatchNorm>(node.attributes) && running.empty()) {
        const auto wide = at::TensorOptions().dtype(at::kDouble);
        running = {at::zeros({node.output[0]}, wide), at::ones({node.output[0]}, wide)};
      }
      y = values[id.value()] = reference_output(graph_, id, in, own, running, context);
    }
    return y;
  }

  Tensors formatted(const Tensors& tensors) const {
    Tensors result;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto& [node, index] = group_.parameters[i];
      const auto format = format_ == Format::preferred ? parameter_format(graph_.node(node), index)
                                                       : at::MemoryFormat::Contiguous;
      result.push_back(tensors[i].clone(format));
    }
    return result;
  }

  Tensors buffers(double fill) const {
    Tensors result;
    for (const at::Tensor& p : formatted(parameters_)) result.push_back(at::full_like(p, fill));
    return result;
  }

  /// A new forward pass on fresh tensors: a backward pass may overwrite what was saved.
  Tensors saved() {
    Tensors saved, fresh;
    for (const at::Tensor& x : inputs_) fresh.push_back(x.clone());
    PassContext again = context_;
    again.pass = Pass::recomputation;
    const at::Tensor y = group_.op->forward(fresh, formatted(parameters_), saved, again);
    expect_close("forward", y, output_);
    return saved;
  }

  void expect_close(const std::string& what, const at::Tensor& ours, const at::Tensor& theirs) {
    EXPECT_LE(relative_error(ours, theirs), s_.tolerance) << what;
  }

  void expect_parameters(const char* pass, const Tensors& gradients, double before) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      expect_close(fmt::format("{}: gradient of parameter {}", pass, i), gradients[i],
                   parameter_gradients_[i] + before);
    }
  }
  void expect_inputs(const char* pass, const CheckedSink& sink, double before) {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (!wanted_[i]) continue;
      expect_close(fmt::format("{}: gradient of input {}", pass, i), sink.gradient(i),
                   input_gradients_[i] + before);
    }
  }

  void check_split() {
    const Tensors kept = saved();
    Tensors gradients = buffers(-99.0);
    group_.op->weight_gradient(output_gradient_, kept, context_, gradients);
    expect_parameters("W", gradients, 0.0);
    CheckedSink sink(group_.inputs, wanted_, Offer::nothing);
    group_.op->input_gradient(output_gradient_, formatted(parameters_), kept, context_, sink);
    expect_inputs("B", sink, 0.0);
  }

  void check_together(Accumulation accumulation, Offer offer) {
    const double before = accumulation == Accumulation::add ? 0.5 : 0.0;
    Tensors gradients = buffers(accumulation == Accumulation::add ? before : -99.0);
    CheckedSink sink(group_.inputs, wanted_, offer);
    for (std::size_t i = 0; offer == Offer::in_place && i < inputs_.size(); ++i) {
      if (wanted_[i]) sink.start(i, at::full_like(inputs_[i], before));
    }
    PassContext context = context_;
    context.accumulation = accumulation;
    group_.op->backward(output_gradient_, formatted(parameters_), saved(), context, sink,
                        gradients);
    expect_parameters("BW", gradients, before);
    expect_inputs("BW", sink, offer == Offer::in_place ? before : 0.0);
  }

  void check_unwanted() {
    Tensors gradients = buffers(-99.0);
    CheckedSink sink(group_.inputs, std::vector<bool>(wanted_.size(), false), Offer::nothing);
    group_.op->backward(output_gradient_, formatted(parameters_), saved(), context_, sink,
                        gradients);
    expect_parameters("no input gradient wanted", gradients, 0.0);
  }

  // Once through training first, so that running statistics are not their initial values.
  void check_evaluation() {
    Tensors saved;
    group_.op->forward(inputs_, formatted(parameters_), saved, context_);
    const Tensors ours = group_.op->buffers();
    ASSERT_EQ(ours.size(), running_.size());
    for (std::size_t i = 0; i < ours.size(); ++i) expect_close("running", ours[i], running_[i]);
    PassContext evaluation = context_;
    evaluation.mode = Mode::evaluate;
    const bool has_dropout = std::any_of(group_.nodes.begin(), group_.nodes.end(), [&](NodeId id) {
      return std::holds_alternative<Dropout>(graph_.node(id).attributes);
    });
    Tensors wide, wide_parameters;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      wide.push_back(wanted_[i] ? inputs_[i].to(at::kDouble) : inputs_[i]);
    }
    for (const at::Tensor& p : parameters_) wide_parameters.push_back(p.to(at::kDouble));
    const at::Tensor expected =
        has_dropout ? wide[0] : chain(wide, wide_parameters, evaluation, running_);
    expect_close("evaluation",
                 group_.op->forward(inputs_, formatted(parameters_), saved, evaluation), expected);
  }

  const ModelGraph& graph_;
  OperatorGroup group_;
  CheckSettings s_;
  PassContext context_;
  Format format_ = Format::preferred;
  std::string name_;
  Tensors inputs_, parameters_;
  std::vector<bool> wanted_;
  at::Tensor output_, output_gradient_;
  Tensors input_gradients_, parameter_gradients_, running_;
};

}  // namespace

// One thread: the tensors are small, and threads of tests that run side by side only wait.
void check_groups(const ModelGraph& graph, const CheckSettings& settings) {
  at::set_num_threads(1);
  for (OperatorGroup& group : make_operator_groups(graph, settings.type, settings.fusion)) {
    GroupCheck(graph, std::move(group), settings).run();
  }
}

ModelGradients run_model(const ModelGraph& graph, const ReferenceModel& reference,
                         at::ScalarType type, Fusion fusion, const at::Tensor& sample,
                         const at::Tensor& targets, const PassContext& base) {
  std::vector<OperatorGroup> groups = make_operator_groups(graph, type, fusion);
  std::map<std::int32_t, at::Tensor> values{{graph.input().value(), sample}};
  std::map<std::int32_t, at::Tensor> slots;
  std::vector<Tensors> saved(groups.size()), parameters(groups.size());
  ModelGradients result;
  PassContext context = base;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Tensors inputs;
    for (const NodeId id : groups[g].inputs) inputs.push_back(values.at(id.value()));
    for (const auto& [node, index] : groups[g].parameters) {
      // A tied weight is named by its owner.
      parameters[g].push_back(reference.parameter(node, index)
                                  .detach()
                                  .to(type)
                                  .clone(parameter_format(graph.node(node), index)));
    }
    if (groups[g].nodes.back() == graph.loss()) inputs.push_back(targets);
    context.node = groups[g].nodes.back().value();
    values[context.node] = groups[g].op->forward(inputs, parameters[g], saved[g], context);
    if (!groups[g].op->buffers().empty()) result.buffers[context.node] = groups[g].op->buffers();
  }
  result.loss = values.at(graph.loss().value());
  slots[graph.loss().value()] = at::ones_like(result.loss);
  for (std::size_t g = groups.size(); g-- > 0;) {
    const OperatorGroup& group = groups[g];
    std::vector<bool> wanted;
    for (const NodeId id : group.inputs) wanted.push_back(id != graph.input());
    if (group.nodes.back() == graph.loss()) wanted.push_back(false);
    Tensors gradients;
    bool add = false;
    for (const auto& [node, index] : group.parameters) {
      add = add || result.parameters.count({node.value(), index}) != 0;
    }
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const auto& [node, index] = group.parameters[i];
      at::Tensor& buffer = result.parameters[{node.value(), index}];
      if (!buffer.defined()) buffer = at::full_like(parameters[g][i], add ? 0.0 : -99.0);
      gradients.push_back(buffer);
    }
    context.node = group.nodes.back().value();
    context.accumulation = add ? Accumulation::add : Accumulation::overwrite;
    CheckedSink sink(group.inputs, wanted, Offer::nothing);
    for (std::size_t i = 0; i < group.inputs.size(); ++i) {
      sink.start(i, slots[group.inputs[i].value()]);
    }
    group.op->backward(slots.at(context.node), parameters[g], saved[g], context, sink, gradients);
    for (std::size_t i = 0; i < group.inputs.size(); ++i) {
      if (wanted[i]) slots[group.inputs[i].value()] = sink.gradient(i);
    }
  }
  return result;
}

}  // namespace heteroperf
