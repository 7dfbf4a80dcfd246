#include "workloads/graph/graph_counts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "metrics/base/random.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

std::int64_t between(RandomStream& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1)));
}

Conv2d random_convolution(RandomStream& random, std::int64_t channels) {
  Conv2d conv;
  conv.groups = channels % 2 == 0 ? between(random, 1, 2) : 1;
  conv.out_channels = 2 * between(random, 1, 3);
  for (std::size_t axis : {0, 1}) {
    conv.kernel[axis] = between(random, 1, 3);
    conv.stride[axis] = between(random, 1, 2);
    conv.padding[axis] = between(random, 0, 1);
  }
  return conv;
}

/// Multiply-adds of a convolution, one at a time, from the attributes and the input's shape.
std::uint64_t naive_multiply_adds(const Conv2d& conv, const Shape& in) {
  std::uint64_t count = 0;
  const std::int64_t in_group = in[0] / conv.groups, out_group = conv.out_channels / conv.groups;
  for (std::int64_t o = 0; o < conv.out_channels; ++o)
    for (std::int64_t y = -conv.padding[0]; y + conv.kernel[0] <= in[1] + conv.padding[0];
         y += conv.stride[0])
      for (std::int64_t x = -conv.padding[1]; x + conv.kernel[1] <= in[2] + conv.padding[1];
           x += conv.stride[1])
        for (std::int64_t c = 0; c < in[0]; ++c)
          if (c / in_group == o / out_group)
            for (std::int64_t k = 0; k < conv.kernel[0] * conv.kernel[1]; ++k) ++count;
  return count;
}

TEST(GraphCounts, RandomChainsEqualNaiveLoops) {
  RandomStream random(11);
  for (int trial = 0; trial < 100; ++trial) {
    ModelGraph graph;
    NodeId x = graph.add("in",
                         Input{InputKind::images, 2 * between(random, 1, 2),
                               between(random, 12, 16), between(random, 12, 16), 0},
                         {});
    std::uint64_t forward = 0, first = 0;
    for (int layer = 0; layer < 2; ++layer) {
      const Shape in = graph.node(x).output;
      const Conv2d conv = random_convolution(random, in[0]);
      const std::uint64_t count = naive_multiply_adds(conv, in);
      forward += count;
      if (layer == 0) first = count;
      x = graph.add(fmt::format("conv{}", layer), conv, {x});
      x = graph.add(fmt::format("relu{}", layer), Relu{}, {x});
    }
    x = graph.add("flat", Flatten{}, {x});
    const auto features = static_cast<std::uint64_t>(graph.node(x).output[0]);
    x = graph.add("fc", Linear{5, true, {}}, {x});
    graph.add("loss", CrossEntropy{}, {x});
    forward += 5 * features;
    const GraphCounts counts = count_graph(graph);
    EXPECT_EQ(counts.strict.forward, Ops(2 * forward));
    EXPECT_EQ(counts.strict.weight_gradient, Ops(2 * forward));
    EXPECT_EQ(counts.strict.input_gradient, Ops(2 * (forward - first)));
    EXPECT_EQ(counts.conventions[Convention::mac].forward, Ops(forward));
  }
}

TEST(GraphCounts, TotalsAreTheSumsOverLayersForEveryConvention) {
  for (const char* name : {"resnet18", "vgg16", "vit-b-16", "bert-base", "nano", "mini"}) {
    const GraphCounts counts = count_graph(build_model(name), 3);
    StrictOps strict;
    std::uint64_t parameters = 0;
    for (const LayerCounts& layer : counts.layers) {
      strict.forward += layer.strict.forward;
      strict.input_gradient += layer.strict.input_gradient;
      strict.weight_gradient += layer.strict.weight_gradient;
      parameters += layer.parameters;
      EXPECT_EQ(layer.conventions[Convention::strict].backward, layer.strict.backward());
    }
    EXPECT_EQ(strict.train(), counts.strict.train()) << name;
    EXPECT_EQ(counts.conventions[Convention::strict].train(), counts.strict.train()) << name;
    EXPECT_EQ(parameters, counts.parameters) << name;
    EXPECT_EQ(parameters, build_model(name).parameter_count()) << name;
  }
}

TEST(GraphCounts, AreProportionalToTheSamples) {
  const ModelGraph graph = build_model("resnet50-v1");
  const GraphCounts one = count_graph(graph), many = count_graph(graph, 448);
  for (Convention convention : {Convention::strict, Convention::aiperf, Convention::mac}) {
    EXPECT_EQ(many.conventions[convention].forward.value(),
              448 * one.conventions[convention].forward.value());
  }
  EXPECT_EQ(strict_forward_ops(graph, 448), many.strict.forward);
  EXPECT_EQ(strict_train_ops(graph, 448), many.strict.train());
  EXPECT_EQ(strict_train_ops(graph, 0), Ops(0));
}

TEST(GraphCounts, AnOperatorOnTheRawSampleNeedsNoInputGradient) {
  ModelGraph graph;
  NodeId x = graph.add("in", Input{InputKind::images, 1, 4, 4, 0}, {});
  const NodeId flat = graph.add("flat", Flatten{}, {x});
  const NodeId first = graph.add("first", Linear{8, true, {}}, {flat});
  const NodeId second = graph.add("second", Linear{3, true, {}}, {first});
  // Beside the first layer: it reads the raw sample too.
  const NodeId beside = graph.add("beside", Linear{3, true, {}}, {flat});
  graph.add("loss", CrossEntropy{}, {graph.add("sum", Add{}, {second, beside})});
  EXPECT_EQ(strict_node_ops(graph, first).input_gradient, Ops(0));
  EXPECT_EQ(strict_node_ops(graph, first).weight_gradient, Ops(2 * 16 * 8));
  EXPECT_EQ(strict_node_ops(graph, beside).input_gradient, Ops(0));
  EXPECT_EQ(strict_node_ops(graph, second).input_gradient, Ops(2 * 8 * 3));
}

TEST(GraphCounts, EmbeddingsCountNothingButNeedTheirGradient) {
  const ModelGraph graph = build_model("nano");
  const StrictOps embedding = strict_node_ops(graph, graph.find("embedding"));
  EXPECT_EQ(embedding.train(), Ops(0));
  const StrictOps qkv = strict_node_ops(graph, graph.find("block0.attn.qkv"));
  EXPECT_EQ(qkv.input_gradient, qkv.forward);
}

TEST(GraphCounts, GroupedQueriesCostAttentionNothingLess) {
  const auto attention = [](std::int64_t kv_heads) {
    ModelGraph graph;
    const NodeId in = graph.add("in", Input{InputKind::tokens, 0, 0, 0, 6}, {});
    const NodeId x = graph.add("e", Embedding{9, (4 + 2 * kv_heads) * 5}, {in});
    return strict_node_ops(graph, graph.add("a", Attention{4, kv_heads, 5, true, false}, {x}));
  };
  EXPECT_EQ(attention(1).forward, attention(4).forward);
  EXPECT_EQ(attention(4).forward, Ops(2 * 4 * 5 * 36));
  EXPECT_EQ(attention(4).input_gradient, Ops(4 * 4 * 5 * 36));
}

TEST(GraphCounts, OnlyTheFirstConvolutionOfTheListIsFirstUnderAiperf) {
  ModelGraph graph;
  const NodeId in = graph.add("in", Input{InputKind::images, 1, 4, 4, 0}, {});
  const NodeId a = graph.add("a", Conv2d{2}, {in}), b = graph.add("b", Conv2d{2}, {in});
  EXPECT_EQ(operator_use(graph, a).order, ConvolutionOrder::first);
  EXPECT_EQ(operator_use(graph, b).order, ConvolutionOrder::later);
  EXPECT_EQ(operator_use(graph, b).input_gradient, InputGradient::none);
}

/// Counted element by element of every window.
TEST(PaddingOps, AreTheTapsOutsideOfTheImage) {
  for (const Conv2d& conv :
       {Conv2d{5, {3, 3}, {1, 1}, {1, 1}, 1, false}, Conv2d{4, {7, 5}, {2, 3}, {3, 2}, 2, true},
        Conv2d{6, {2, 4}, {1, 2}, {0, 3}, 1, false}}) {
    ModelGraph graph;
    const NodeId image = graph.add("image", Input{InputKind::images, 4, 6, 5, 0}, {});
    const NodeId first = graph.add("first", Conv2d{4, {1, 1}, {1, 1}, {0, 0}, 1, false}, {image});
    const NodeId node = graph.add("conv", conv, {first});
    const Shape out = graph.node(node).output;
    std::uint64_t outside = 0, all = 0;
    for (std::int64_t h = 0; h < out[1]; ++h) {
      for (std::int64_t w = 0; w < out[2]; ++w) {
        for (std::int64_t kh = 0; kh < conv.kernel[0]; ++kh) {
          for (std::int64_t kw = 0; kw < conv.kernel[1]; ++kw, ++all) {
            const std::int64_t row = h * conv.stride[0] - conv.padding[0] + kh;
            const std::int64_t column = w * conv.stride[1] - conv.padding[1] + kw;
            if (row < 0 || row >= 6 || column < 0 || column >= 5) ++outside;
          }
        }
      }
    }
    ASSERT_GT(outside, 0U);
    EXPECT_EQ(padding_train_ops(graph, 3) * all,
              strict_node_ops(graph, node).train() * 3 * outside);
  }
}

}  // namespace
}  // namespace heteroperf
