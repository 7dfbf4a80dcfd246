#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "tests/unit/runners/engine/operators/small_graphs.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

struct FusionCase {
  const char* name;
  void (*build)(ModelGraph& graph);
  std::vector<std::string> group;  ///< nodes of one group that must exist
};

const FusionCase fusions[] = {
    {"linear_gelu",
     [](ModelGraph& g) {
       const NodeId x = add_sequence(g, 7, 19);
       g.add("gelu", Gelu{}, {g.add("linear", Linear{37, true, {}}, {x})});
     },
     {"linear", "gelu"}},
    {"linear_gelu_tanh_without_bias",
     [](ModelGraph& g) {
       const NodeId x = add_vector(g, 19);
       g.add("gelu", Gelu{GeluForm::tanh}, {g.add("linear", Linear{21, false, {}}, {x})});
     },
     {"linear", "gelu"}},
    {"linear_residual",
     [](ModelGraph& g) {
       const NodeId x = add_sequence(g, 7, 19);
       g.add("add", Add{}, {x, g.add("linear", Linear{19, true, {}}, {x})});
     },
     {"linear", "add"}},
    {"linear_residual_left",
     [](ModelGraph& g) {
       const NodeId x = add_sequence(g, 7, 19);
       g.add("add", Add{}, {g.add("linear", Linear{19, false, {}}, {x}), x});
     },
     {"linear", "add"}},
    {"batch_norm_relu",
     [](ModelGraph& g) {
       const NodeId x = add_images(g, 17, 5, 6);
       g.add("relu", Relu{}, {g.add("norm", BatchNorm{}, {x})});
     },
     {"norm", "relu"}},
    {"batch_norm_add_relu",
     [](ModelGraph& g) {
       const NodeId x = add_images(g, 17, 5, 6);
       const NodeId side = g.add("side", Tanh{}, {x});
       const NodeId add = g.add("add", Add{}, {g.add("norm", BatchNorm{}, {x}), side});
       g.add("relu", Relu{}, {add});
     },
     {"norm", "add", "relu"}},
    {"add_batch_norm_relu",
     [](ModelGraph& g) {
       const NodeId x = add_images(g, 17, 5, 6);
       const NodeId side = g.add("side", Tanh{}, {x});
       const NodeId add = g.add("add", Add{}, {side, g.add("norm", BatchNorm{}, {x})});
       g.add("relu", Relu{}, {add});
     },
     {"norm", "add", "relu"}},
    {"add_relu",
     [](ModelGraph& g) {
       const NodeId x = add_images(g, 5, 5, 6);
       const NodeId side = g.add("side", Tanh{}, {x});
       g.add("relu", Relu{}, {g.add("add", Add{}, {x, side})});
     },
     {"add", "relu"}},
    {"swiglu",
     [](ModelGraph& g) {
       const NodeId x = add_sequence(g, 7, 19);
       const NodeId gate = g.add("gate", Linear{23, false, {}}, {x});
       const NodeId up = g.add("up", Linear{23, false, {}}, {x});
       g.add("multiply", Multiply{}, {g.add("silu", Silu{}, {gate}), up});
     },
     {"silu", "multiply"}},
    {"embedding_positions",
     [](ModelGraph& g) { g.add("positions", PositionEmbedding{9}, {add_sequence(g, 7, 19)}); },
     {"embedding", "positions"}},
};

class Fusions : public testing::TestWithParam<FusionCase> {};

std::vector<std::vector<std::string>> group_names(const ModelGraph& graph, Fusion fusion) {
  std::vector<std::vector<std::string>> names;
  for (const OperatorGroup& group : make_operator_groups(graph, at::kDouble, fusion)) {
    names.emplace_back();
    for (const NodeId id : group.nodes) names.back().push_back(graph.node(id).name);
  }
  return names;
}

TEST_P(Fusions, AreFoundAndAgreeWithAutograd) {
  ModelGraph graph;
  GetParam().build(graph);
  const auto names = group_names(graph, Fusion::on);
  EXPECT_NE(std::find(names.begin(), names.end(), GetParam().group), names.end());
  for (const auto& [type, tolerance] :
       {std::pair{at::kDouble, 1e-10}, {at::kFloat, 2e-5}, {at::kBFloat16, 0.05}}) {
    CheckSettings settings;
    settings.type = type;
    settings.tolerance = tolerance;
    settings.fusion = Fusion::on;
    check_groups(graph, settings);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fusions, testing::ValuesIn(fusions),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

TEST(Groups, LeaveSharedNodesAlone) {
  ModelGraph graph;
  const NodeId x = add_sequence(graph, 7, 19);
  const NodeId linear = graph.add("linear", Linear{19, true, {}}, {x});
  graph.add("gelu", Gelu{}, {linear});
  graph.add("other", Tanh{}, {linear});
  for (const auto& names : group_names(graph, Fusion::on)) EXPECT_EQ(names.size(), 1U);
}

TEST(Groups, DoNotCrossBranches) {
  ModelGraph graph;
  const NodeId x = add_sequence(graph, 7, 19);
  const NodeId linear = graph.add("linear", Linear{19, true, {}}, {x}, "left");
  graph.add("gelu", Gelu{}, {linear}, "right");
  for (const auto& names : group_names(graph, Fusion::on)) EXPECT_EQ(names.size(), 1U);
}

/// Every node but the sample in exactly one group, groups after those they read from, inputs and
/// parameters as the nodes say.
void expect_well_formed(const ModelGraph& graph, Fusion fusion) {
  std::vector<int> seen(graph.nodes().size());
  std::vector<bool> available(graph.nodes().size());
  for (const NodeId input : graph.inputs()) available[input.index()] = true;
  std::size_t parameters = 0, owned = 0;
  for (const OperatorGroup& group : make_operator_groups(graph, at::kFloat, fusion)) {
    for (const NodeId id : group.inputs) {
      EXPECT_TRUE(available[id.index()]) << graph.node(id).name;
    }
    for (const NodeId id : group.nodes) ++seen[id.index()];
    available[group.nodes.back().index()] = true;
    parameters += group.parameters.size();
  }
  for (std::size_t n = 0; n < seen.size(); ++n) {
    const Node& node = graph.nodes()[n];
    EXPECT_EQ(seen[n], std::holds_alternative<Input>(node.attributes) ? 0 : 1) << node.name;
    const auto* linear = std::get_if<Linear>(&node.attributes);
    owned += node.parameters.size() + (linear != nullptr && !linear->tied_to.empty() ? 1 : 0);
  }
  EXPECT_EQ(parameters, owned);
}

TEST(Groups, OfEveryModelAreWellFormed) {
  for (const ModelSpec& spec : models()) {
    SCOPED_TRACE(spec.name);
    // Batch-norm statistics are the only tensors an operator holds, so size does not matter.
    const ModelGraph graph = build_model(spec.name);
    expect_well_formed(graph, Fusion::off);
    expect_well_formed(graph, Fusion::on);
  }
}

/// The library's matrix products may split their sums by thread; everything else is ours.
bool has_products(const ModelGraph& graph, const OperatorGroup& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId id) {
    const auto& a = graph.node(id).attributes;
    return std::holds_alternative<Linear>(a) || std::holds_alternative<Conv2d>(a) ||
           std::holds_alternative<Attention>(a);
  });
}

/// Output, gradients and running statistics of a group made on its own.
Tensors results_of(const ModelGraph& graph, OperatorGroup& group, std::int64_t batch, int threads) {
  at::set_num_threads(threads);
  Tensors inputs, parameters, gradients, saved;
  std::vector<bool> wanted;
  for (const NodeId id : group.inputs) {
    const bool sample = id == graph.input();
    inputs.push_back(sample ? random_sample(graph, batch, at::kFloat, 1)
                            : random_tensor(batched(batch, graph.node(id).output), at::kFloat, 2));
    wanted.push_back(!sample);
  }
  if (group.nodes.back() == graph.loss()) {
    inputs.push_back(random_targets(graph, batch, 3));
    wanted.push_back(false);
  }
  for (const auto& [node, index] : group.parameters) {
    const Shape& shape = graph.node(node).parameters[index].shape;
    parameters.push_back(random_tensor(shape, at::kFloat, 4));
    gradients.push_back(random_tensor(shape, at::kFloat, 5));
  }
  at::Tensor y = group.op->forward(inputs, parameters, saved, {});
  CheckedSink sink(group.inputs, wanted, Offer::nothing);
  group.op->backward(random_tensor(y.sizes(), y.scalar_type(), 6), parameters, saved, {}, sink,
                     gradients);
  Tensors results = std::move(gradients);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) results.push_back(sink.gradient(i));
  }
  for (const at::Tensor& buffer : group.op->buffers()) results.push_back(buffer);
  results.push_back(y);
  return results;
}

void expect_equal_bits(const ModelGraph& graph, std::int64_t batch) {
  const int before = at::get_num_threads();
  std::vector<OperatorGroup> once = make_operator_groups(graph, at::kFloat);
  std::vector<OperatorGroup> again = make_operator_groups(graph, at::kFloat);
  std::size_t compared = 0;
  for (std::size_t g = 0; g < once.size(); ++g) {
    if (has_products(graph, once[g])) continue;
    const Tensors one = results_of(graph, once[g], batch, 1);
    for (const int threads : {2, 3}) {
      const Tensors many = results_of(graph, threads == 2 ? again[g] : once[g], batch, threads);
      if (threads == 3 && !once[g].op->buffers().empty()) continue;  // running twice
      for (std::size_t i = 0; i < one.size(); ++i, ++compared) {
        EXPECT_TRUE(one[i].equal(many[i])) << graph.node(once[g].nodes[0]).name << " result " << i;
      }
    }
  }
  at::set_num_threads(before);
  EXPECT_GT(compared, 20U);
}

TEST(Threads, DoNotChangeTheBitsOfAGptsOwnKernels) {
  ModelOptions options;
  options.dropout = 0.1;
  expect_equal_bits(build_model("nano", options), 8);
}

TEST(Threads, DoNotChangeTheBitsOfAResNetsOwnKernels) {
  ModelOptions options;
  options.height = options.width = 64;
  options.classes = 10;
  expect_equal_bits(build_model("resnet18", options), 8);
}

}  // namespace
}  // namespace heteroperf
