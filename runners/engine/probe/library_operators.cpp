// Times LibTorch's own operators on the operations of a model: the measure of how much of a device
// our operators leave unused.
//
// Every node becomes the calls that LibTorch's eager mode makes for it, forward and backward, on
// operands of its own. The calls of all operations take turns, forward in the order of the model
// and backward against it, so that operands come from where they do in a training and not from a
// cache that the last call has just filled. A chain takes as long as its nodes together.
#include "runners/engine/probe/measure_operations.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/conformance/operator_cases.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"

namespace heteroperf {
namespace {

/// Seconds that LibTorch's own operators take, one after another as eager code calls them; 0 where
/// it has none for a node of the chain.
struct LibrarySeconds {
  double forward_s = 0, backward_s = 0;
};

using Call = std::function<void()>;
struct LibraryCalls {
  Call forward, backward;
};
using Calls = std::optional<LibraryCalls>;

/// The operands of one node.
struct NodeOperands {
  const ModelGraph& graph;
  const Node& node;
  std::int64_t samples;
  at::TensorOptions options;

  at::Tensor of(const Shape& shape) const {
    Shape sizes = shape;
    sizes.insert(sizes.begin(), samples);
    return canonical(at::full(sizes, 0.01, options));
  }
  at::Tensor input(std::size_t i = 0) const { return of(graph.node(node.inputs[i]).output); }
  at::Tensor gradient() const { return of(node.output); }
  at::Tensor parameter(std::size_t i) const {
    return at::full(node.parameters[i].shape, 0.01, options).contiguous(parameter_format(node, i));
  }
  /// False for the input of a first layer.
  bool passes_gradient() const { return graph.node(node.inputs[0]).differentiable; }
};

at::Tensor rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

Calls calls_of(const Linear& kind, const NodeOperands& o) {
  const NodeId owner = kind.tied_to.empty() ? NodeId(-1) : o.graph.find(kind.tied_to);
  const at::Tensor x = o.input(), g = o.gradient();
  const at::Tensor w = kind.tied_to.empty()
                           ? o.parameter(0)
                           : at::full(o.graph.node(owner).parameters[0].shape, 0.01, o.options);
  const at::Tensor b = kind.bias && kind.tied_to.empty() ? o.parameter(1) : at::Tensor();
  return LibraryCalls{[=] { at::linear(x, w, b); },
                      [=, passes = o.passes_gradient()] {
                        if (passes) at::mm(rows(g), w);
                        at::mm(rows(g).t(), rows(x));
                        if (b.defined()) rows(g).sum(0);
                      }};
}
Calls calls_of(const Conv2d& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient(), w = o.parameter(0);
  const at::Tensor b = kind.bias ? o.parameter(1) : at::Tensor();
  const std::array<std::int64_t, 1> biases{kind.out_channels};
  return LibraryCalls{
      [=] {
        at::convolution(x, w, b, kind.stride, kind.padding, {1, 1}, false, {0, 0}, kind.groups);
      },
      [=, passes = o.passes_gradient()] {
        at::convolution_backward(
            g, x, w, b.defined() ? at::OptionalIntArrayRef(biases) : at::OptionalIntArrayRef(),
            kind.stride, kind.padding, {1, 1}, false, {0, 0}, kind.groups,
            {passes, true, b.defined()});
      }};
}
Calls calls_of(const BatchNorm& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  // LibTorch takes parameters and statistics of one type.
  const auto wide = o.options.dtype(accumulation_type(x.scalar_type()));
  const at::Tensor w = o.parameter(0).to(wide), b = o.parameter(1).to(wide);
  const at::Tensor mean = at::zeros({x.size(1)}, wide), variance = at::full({x.size(1)}, 1.0, wide);
  const auto saved = at::native_batch_norm(x, w, b, mean, variance, true, kind.momentum, kind.eps);
  return LibraryCalls{
      [=] { at::native_batch_norm(x, w, b, mean, variance, true, kind.momentum, kind.eps); },
      [=] {
        at::native_batch_norm_backward(g, x, w, mean, variance, std::get<1>(saved),
                                       std::get<2>(saved), true, kind.eps, {true, true, true});
      }};
}
Calls calls_of(const LayerNorm& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient(), w = o.parameter(0);
  const at::Tensor b = kind.bias ? o.parameter(1) : at::Tensor();
  const std::array<std::int64_t, 1> shape{x.size(-1)};
  const auto saved = at::native_layer_norm(x, shape, w, b, kind.eps);
  return LibraryCalls{[=] { at::native_layer_norm(x, shape, w, b, kind.eps); },
                      [=] {
                        at::native_layer_norm_backward(g, x, shape, std::get<1>(saved),
                                                       std::get<2>(saved), w, b,
                                                       {true, true, b.defined()});
                      }};
}
Calls calls_of(const Relu&, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  return LibraryCalls{[=] { at::relu(x); }, [=] { at::threshold_backward(g, x, 0); }};
}
Calls calls_of(const Gelu& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  const char* const form = kind.form == GeluForm::tanh ? "tanh" : "none";
  return LibraryCalls{[=] { at::gelu(x, form); }, [=] { at::gelu_backward(g, x, form); }};
}
Calls calls_of(const Silu&, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  return LibraryCalls{[=] { at::silu(x); }, [=] { at::silu_backward(g, x); }};
}
Calls calls_of(const Tanh&, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  return LibraryCalls{[=] { at::tanh(x); }, [=] { at::tanh_backward(g, x); }};
}
/// A sum hands its gradient on as it is.
Calls calls_of(const Add&, const NodeOperands& o) {
  const at::Tensor a = o.input(0), b = o.input(1);
  return LibraryCalls{[=] { a.add(b); }, [] {}};
}
Calls calls_of(const Multiply&, const NodeOperands& o) {
  const at::Tensor a = o.input(0), b = o.input(1), g = o.gradient();
  return LibraryCalls{[=] { a.mul(b); },
                      [=] {
                        g.mul(b);
                        g.mul(a);
                      }};
}
Calls calls_of(const MaxPool& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  const at::Tensor taps =
      std::get<1>(at::max_pool2d_with_indices(x, kind.kernel, kind.stride, kind.padding));
  return LibraryCalls{
      [=] { at::max_pool2d_with_indices(x, kind.kernel, kind.stride, kind.padding); },
      [=] {
        at::max_pool2d_with_indices_backward(g, x, kind.kernel, kind.stride, kind.padding, {1, 1},
                                             false, taps);
      }};
}
Calls calls_of(const AvgPool& kind, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  return LibraryCalls{
      [=] { at::avg_pool2d(x, kind.kernel, kind.stride, kind.padding, false, false); },
      [=] {
        at::avg_pool2d_backward(g, x, kind.kernel, kind.stride, kind.padding, false, false,
                                std::nullopt);
      }};
}
Calls calls_of(const GlobalAvgPool&, const NodeOperands& o) {
  const at::Tensor x = o.input(), g = o.gradient();
  return LibraryCalls{[=] {
                        x.mean(at::IntArrayRef{2, 3});
                      },
                      [=] {
                        const double pixels = static_cast<double>(x.size(2) * x.size(3));
                        (g / pixels).view({g.size(0), g.size(1), 1, 1}).expand_as(x).contiguous();
                      }};
}
Calls calls_of(const Embedding& kind, const NodeOperands& o) {
  const at::Tensor w = o.parameter(0), g = o.gradient();
  const at::Tensor tokens = at::zeros({o.samples, o.node.output[0]}, o.options.dtype(at::kLong));
  for (std::int64_t i = 0; !tokens.is_cuda() && i < tokens.numel(); ++i) {
    tokens.data_ptr<std::int64_t>()[i] = i % kind.vocabulary;
  }
  return LibraryCalls{[=] { at::embedding(w, tokens); },
                      [=] { at::embedding_dense_backward(g, tokens, kind.vocabulary, -1, false); }};
}
Calls calls_of(const PositionEmbedding&, const NodeOperands& o) {
  const at::Tensor x = o.input(), w = o.parameter(0), g = o.gradient();
  return LibraryCalls{[=] { x.add(w.narrow(0, 0, x.size(1))); }, [=] { g.sum(0); }};
}
Calls calls_of(const Attention& kind, const NodeOperands& o) {
  const at::Tensor packed = o.input(), g = o.gradient();
  if (kind.alibi || kind.heads != kind.kv_heads || packed.is_cuda()) return std::nullopt;
  const auto part = [=](std::int64_t first) {
    return packed.narrow(2, first * kind.head_dim, kind.heads * kind.head_dim)
        .view({packed.size(0), packed.size(1), kind.heads, kind.head_dim})
        .transpose(1, 2);
  };
  const at::Tensor q = part(0), k = part(kind.heads), v = part(2 * kind.heads);
  const auto saved = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, kind.causal);
  const at::Tensor heads = g.view(q.transpose(1, 2).sizes()).transpose(1, 2);
  const auto merged = [](const at::Tensor& t) {
    return t.transpose(1, 2).reshape({t.size(0), t.size(2), -1});
  };
  return LibraryCalls{
      [=] {
        merged(std::get<0>(
            at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, kind.causal)));
      },
      [=] {
        const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            heads, q, k, v, std::get<0>(saved), std::get<1>(saved), 0.0, kind.causal);
        at::cat({merged(dq), merged(dk), merged(dv)}, 2);
      }};
}
Calls calls_of(const CrossEntropy& kind, const NodeOperands& o) {
  if (kind.label_smoothing > 0) return std::nullopt;
  const at::Tensor logits = rows(o.input());
  const at::Tensor targets = at::zeros({logits.size(0)}, o.options.dtype(at::kLong));
  const at::Tensor log_p = at::_log_softmax(logits, -1, false);
  const auto loss = at::nll_loss_forward(log_p, targets, std::nullopt, 1, -100);
  const at::Tensor g = at::full({}, 1.0, log_p.options());
  return LibraryCalls{
      [=] {
        at::nll_loss_forward(at::_log_softmax(logits, -1, false), targets, std::nullopt, 1, -100);
      },
      [=] {
        const at::Tensor d =
            at::nll_loss_backward(g, log_p, targets, std::nullopt, 1, -100, std::get<1>(loss));
        at::_log_softmax_backward_data(d, log_p, -1, logits.scalar_type());
      }};
}
/// The rest moves data, or has no operator of LibTorch's.
template <class Kind>
Calls calls_of(const Kind&, const NodeOperands&) {
  return std::nullopt;
}

class LibraryRounds {
 public:
  LibraryRounds(const OperationProbe& probe, at::Device device) {
    const at::ScalarType type = scalar_type(probe.precision);
    const auto options = at::TensorOptions().dtype(type).device(device);
    const std::vector<OperatorGroup> groups = make_operator_groups(probe.graph, type);
    for (const FusedWork& work : probe.model.operations) {
      Operation& operation = operations_.emplace_back();
      const auto group = std::ranges::find_if(
          groups, [&](const OperatorGroup& g) { return g.nodes.back() == work.last; });
      HETEROPERF_EXPECT(group != groups.end());
      for (const NodeId id : group->nodes) {
        const Node& node = probe.graph.node(id);
        const NodeOperands operands{probe.graph, node, probe.samples, options};
        const Calls calls =
            std::visit([&](const auto& kind) { return calls_of(kind, operands); }, node.attributes);
        operation.complete &= calls.has_value();
        if (calls) operation.nodes.push_back(*calls);
      }
    }
  }

  void round(Accelerator* accelerator) {
    for (Operation& operation : operations_) {
      time(operation, accelerator, operation.forward_s,
           [](const LibraryCalls& calls) { calls.forward(); });
    }
    for (std::size_t i = operations_.size(); i-- > 0;) {
      time(operations_[i], accelerator, operations_[i].backward_s,
           [](const LibraryCalls& calls) { calls.backward(); });
    }
  }

  std::vector<LibrarySeconds> seconds() const {
    std::vector<LibrarySeconds> result;
    for (const Operation& operation : operations_) {
      const bool told = operation.complete && !operation.forward_s.empty();
      result.push_back(
          told ? LibrarySeconds{median(operation.forward_s), median(operation.backward_s)}
               : LibrarySeconds{});
    }
    return result;
  }
  void forget() {
    for (Operation& operation : operations_) {
      operation.forward_s.clear();
      operation.backward_s.clear();
    }
  }

 private:
  struct Operation {
    std::vector<LibraryCalls> nodes = {};
    bool complete = true;
    std::vector<double> forward_s = {}, backward_s = {};
  };

  template <class Run>
  static void time(const Operation& operation, Accelerator* accelerator,
                   std::vector<double>& seconds, const Run& run) {
    if (!operation.complete) return;
    const auto mark = accelerator != nullptr ? accelerator->mark() : nullptr;
    const Stopwatch stopwatch;
    for (const LibraryCalls& calls : operation.nodes) run(calls);
    seconds.push_back(mark ? accelerator->mark()->seconds_since(*mark) : stopwatch.elapsed_s());
  }

  std::vector<Operation> operations_;
};

/// Times LibTorch's operators for each of the probe's operations, for about `seconds` in all. In
/// the order of OperationProbe::model.
std::vector<LibrarySeconds> time_library_operators(const OperationProbe& probe, double seconds) {
  constexpr int least_rounds = 3, most_rounds = 200;
  const RankMemory memory;
  use_threads(probe.threads);
  const MemoryScope charged(memory);
  const c10::InferenceMode no_tape;
  Accelerator* const accelerator = probe.gpu ? &use_cuda(*probe.gpu) : nullptr;
  LibraryRounds rounds(probe, probe.gpu ? cuda_device(*probe.gpu) : at::Device(at::kCPU));
  rounds.round(accelerator);  // warms up
  rounds.forget();
  const Stopwatch stopwatch;
  for (int i = 0; i < most_rounds && (i < least_rounds || stopwatch.elapsed_s() < seconds); ++i) {
    rounds.round(accelerator);
  }
  return rounds.seconds();
}

/// "8x64x128-8x64x512": what goes into a chain and what comes out.
std::string shape_text(const ModelGraph& graph, const std::vector<NodeId>& nodes,
                       std::int64_t samples) {
  const Node &first = graph.node(nodes.front()), &last = graph.node(nodes.back());
  const auto with_samples = [&](const Shape& shape) {
    return fmt::format("{}{}{}", samples, shape.empty() ? "" : "x", fmt::join(shape, "x"));
  };
  return with_samples(graph.node(first.inputs.front()).output) + "-" + with_samples(last.output);
}

}  // namespace

std::vector<OperatorTime> time_operators(const OperationProbe& probe) {
  const double operations = static_cast<double>(probe.model.operations.size());
  const std::vector<FusedNodes> chains = fuse_nodes(probe.graph);
  std::vector<OperatorTime> result;
  for (const FusedWork& work : probe.model.operations) {
    OperatorTime& time = result.emplace_back();
    const auto fused = std::ranges::find_if(
        chains, [&](const FusedNodes& chain) { return chain.nodes.back() == work.last; });
    time.name = operator_name(probe.graph, fused->nodes);
    time.shape = shape_text(probe.graph, fused->nodes, probe.samples);
    const auto samples = static_cast<double>(probe.samples);
    for (const TrainingPass pass :
         {TrainingPass::forward, TrainingPass::input_gradient, TrainingPass::weight_gradient}) {
      const PassWork of_pass = work.of(pass, samples);
      time.operations += of_pass.operations;
      time.bytes += of_pass.bytes;
    }
  }
  for (const NodeId as : probe.model.measured_as) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (probe.model.operations[i].last == as) ++result[i].count;
    }
  }
  // Enough for an interval of their median.
  constexpr int turns = 6;
  const auto keep = [](double& least, double seconds) {
    if (seconds > 0) least = least > 0 ? std::min(least, seconds) : seconds;
  };
  for (int turn = 0; turn < turns; ++turn) {
    const OperationProbeResult ours = measure_operations(probe);
    const std::vector<LibrarySeconds> library =
        time_library_operators(probe, probe.seconds_each * operations);
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (ours.operations[i].repetitions == 0) continue;
      OperationSeconds& least = result[i].ours;
      const OperationSeconds& measured = ours.operations[i];
      keep(least.forward_s, measured.forward_s);
      keep(least.input_gradient_s, measured.input_gradient_s);
      keep(least.weight_gradient_s, measured.weight_gradient_s);
      keep(least.backward_s, measured.backward_s);
      result[i].forward_turns_s.push_back(measured.forward_s);
      if (measured.backward_s > 0) result[i].backward_turns_s.push_back(measured.backward_s);
      least.repetitions += measured.repetitions;
      keep(result[i].library_forward_s, library[i].forward_s);
      keep(result[i].library_backward_s, library[i].backward_s);
    }
  }
  return result;
}

}  // namespace heteroperf
