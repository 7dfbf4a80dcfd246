#include "workloads/graph/model_graph.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

Input image(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {InputKind::images, channels, height, width, 0};
}
Input sequence(std::int64_t length) { return {InputKind::tokens, 0, 0, 0, length}; }

/// The message of the UserError that adding a node throws.
std::string error_of(ModelGraph& graph, const Attributes& attributes, std::vector<NodeId> inputs) {
  try {
    graph.add("bad", attributes, std::move(inputs));
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

/// An image {6, 8, 9}, its sequence {72, 6}, and a flat vector {432}.
class Shapes : public testing::Test {
 protected:
  ModelGraph graph;
  NodeId picture = graph.add("picture", image(6, 8, 9), {});
  NodeId rows = graph.add("rows", ToSequence{}, {picture});
  NodeId flat = graph.add("flat", Flatten{}, {picture});

  Shape shape_of(const Attributes& attributes, std::vector<NodeId> inputs) {
    const NodeId id = graph.add(fmt::format("n{}", graph.nodes().size()), attributes, inputs);
    return graph.node(id).output;
  }
};

TEST_F(Shapes, AreInferred) {
  EXPECT_EQ(shape_of(Conv2d{4, {3, 5}, {2, 1}, {1, 2}, 2, true}, {picture}), (Shape{4, 4, 9}));
  EXPECT_EQ(shape_of(MaxPool{{3, 3}, {2, 2}, {1, 1}}, {picture}), (Shape{6, 4, 5}));
  EXPECT_EQ(shape_of(AvgPool{{2, 3}, {2, 3}, {0, 0}}, {picture}), (Shape{6, 4, 3}));
  EXPECT_EQ(shape_of(GlobalAvgPool{}, {picture}), (Shape{6}));
  EXPECT_EQ(shape_of(BatchNorm{}, {picture}), (Shape{6, 8, 9}));
  EXPECT_EQ(graph.node(rows).output, (Shape{72, 6}));
  EXPECT_EQ(graph.node(flat).output, (Shape{432}));
  EXPECT_EQ(shape_of(Linear{5, true, {}}, {rows}), (Shape{72, 5}));
  EXPECT_EQ(shape_of(LayerNorm{}, {rows}), (Shape{72, 6}));
  EXPECT_EQ(shape_of(Add{}, {rows, rows}), (Shape{72, 6}));
  EXPECT_EQ(shape_of(Concat{}, {rows, rows, rows}), (Shape{216, 6}));
  EXPECT_EQ(shape_of(Concat{}, {picture, picture}), (Shape{12, 8, 9}));
  EXPECT_EQ(shape_of(ClassToken{}, {rows}), (Shape{73, 6}));
  EXPECT_EQ(shape_of(TakeToken{71}, {rows}), (Shape{6}));
  EXPECT_EQ(shape_of(PositionEmbedding{80}, {rows}), (Shape{72, 6}));
  EXPECT_EQ(shape_of(Attention{1, 1, 2, true, false}, {rows}), (Shape{72, 2}));
  EXPECT_EQ(shape_of(Rotary{1, 1, 2, 10000.0}, {rows}), (Shape{72, 6}));
  EXPECT_EQ(shape_of(CrossEntropy{}, {rows}), (Shape{1}));
}

TEST_F(Shapes, OfParametersAreLibTorchs) {
  const Node& conv =
      graph.node(graph.add("c", Conv2d{4, {3, 5}, {1, 1}, {1, 1}, 2, true}, {picture}));
  ASSERT_EQ(conv.parameters.size(), 2u);
  EXPECT_EQ(conv.parameters[0].shape, (Shape{4, 3, 3, 5}));
  EXPECT_EQ(conv.parameters[1].shape, (Shape{4}));
  const Node& linear = graph.node(graph.add("l", Linear{7, false, {}}, {rows}));
  ASSERT_EQ(linear.parameters.size(), 1u);
  EXPECT_EQ(linear.parameters[0].name, "weight");
  EXPECT_EQ(linear.parameters[0].shape, (Shape{7, 6}));
  EXPECT_EQ(graph.node(graph.add("n", LayerNorm{1e-5, false}, {rows})).parameters.size(), 1u);
  EXPECT_EQ(graph.parameter_count(), 4u * 3 * 15 + 4 + 42 + 6);
}

struct BadNode {
  const char* what;
  Attributes attributes;
  std::vector<int> inputs;  ///< 0 picture, 1 rows, 2 flat
  const char* expected;
};

TEST_F(Shapes, EveryMisfitIsNamed) {
  const BadNode cases[] = {
      {"no channels", Conv2d{0, {3, 3}}, {0}, "out_channels is 0"},
      {"huge channels", Conv2d{std::int64_t{1} << 40}, {0}, "must be in 1..4294967296"},
      {"zero stride", Conv2d{4, {3, 3}, {0, 1}}, {0}, "stride is 0x1"},
      {"negative padding", Conv2d{4, {3, 3}, {1, 1}, {-1, 0}}, {0}, "padding is -1x0"},
      {"groups", Conv2d{4, {1, 1}, {1, 1}, {0, 0}, 4}, {0}, "groups 4 does not divide"},
      {"kernel", Conv2d{4, {11, 1}, {1, 1}, {1, 0}}, {0}, "kernel 11x1 is larger than its input"},
      {"conv of a sequence", Conv2d{4}, {1}, "expected {channels, height, width}"},
      {"pool of a vector", MaxPool{}, {2}, "expected {channels, height, width}"},
      {"pool padding", AvgPool{{2, 2}, {2, 2}, {2, 2}}, {0}, "exceeds half of the kernel"},
      {"norm of a vector", BatchNorm{}, {2}, "expected {channels, height, width}"},
      {"eps", LayerNorm{0.0}, {1}, "eps is 0"},
      {"eps not finite", RmsNorm{std::numeric_limits<double>::quiet_NaN()}, {1}, "eps is nan"},
      {"probability", Dropout{1.0}, {1}, "p is 1"},
      {"smoothing", CrossEntropy{-0.1}, {2}, "label_smoothing is -0.1"},
      {"loss of an image", CrossEntropy{}, {0}, "{classes} or {length, classes}"},
      {"one summand", Add{}, {1}, "has 1 inputs (takes two or more)"},
      {"three factors", Multiply{}, {1, 1, 1}, "has 3 inputs (takes 2)"},
      {"unequal sum", Add{}, {0, 1}, "'picture' {6, 8, 9} and 'rows' {72, 6} differ"},
      {"unequal concat", Concat{}, {0, 1}, "all dimensions but the first"},
      {"no input", Relu{}, {}, "has 0 inputs (takes 1)"},
      {"an input with inputs", image(1, 2, 3), {0}, "has 1 inputs (takes 0)"},
      {"embedding of features", Embedding{5, 4}, {1}, "it takes token indices there"},
      {"short table", PositionEmbedding{71}, {1}, "71 positions for a sequence of 72"},
      {"token index", TakeToken{72}, {1}, "index is 72"},
      {"kv heads", Attention{3, 2, 2, true, false}, {1}, "kv_heads 2 does not divide heads 3"},
      {"packed width", Attention{2, 1, 2, true, false}, {1}, "packed as (heads + 2 kv_heads)"},
      {"odd rotary", Rotary{2, 2, 1, 10000.0}, {1}, "head_dim is 1"},
      {"tied to nothing", Linear{5, true, "row"}, {1}, "Did you mean 'rows'?"},
      {"tied to an image", Linear{5, true, "picture"}, {1}, "is not an embedding"},
  };
  const NodeId ids[] = {picture, rows, flat};
  for (const BadNode& bad : cases) {
    std::vector<NodeId> inputs;
    for (int i : bad.inputs) inputs.push_back(ids[i]);
    const std::string message = error_of(graph, bad.attributes, inputs);
    EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.what << ": " << message;
    EXPECT_NE(message.find("'bad'"), std::string::npos) << bad.what << ": " << message;
  }
  EXPECT_EQ(graph.nodes().size(), 3u) << "a refused node stays out";
}

TEST_F(Shapes, AllProblemsOfANodeComeAtOnce) {
  const std::string message =
      error_of(graph, Conv2d{0, {0, 3}, {1, 1}, {0, 0}, 0, false}, {picture, rows});
  for (const char* part : {"out_channels is 0", "kernel is 0x3", "groups is 0", "has 2 inputs"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST_F(Shapes, TooLargeTensorsAreRefused) {
  ModelGraph wide;
  const NodeId big = wide.add("big", image(1 << 20, 1 << 20, 1), {});
  EXPECT_NE(error_of(wide, Conv2d{std::int64_t{1} << 32}, {big}).find("is too large"),
            std::string::npos);
  EXPECT_EQ(error_of(wide, Conv2d{1 << 20}, {big}), "accepted");
}

TEST(ModelGraph, InputsAreChecked) {
  ModelGraph graph;
  EXPECT_NE(error_of(graph, image(0, 2, 2), {}).find("extents are 0x2x2"), std::string::npos);
  EXPECT_NE(error_of(graph, sequence(0), {}).find("length is 0"), std::string::npos);
  EXPECT_NE(error_of(graph, Input{InputKind::tokens, 1, 0, 0, 5}, {}).find("only a length"),
            std::string::npos);
  EXPECT_NE(error_of(graph, Input{InputKind::images, 1, 1, 1, 5}, {}).find("has a length"),
            std::string::npos);
}

TEST(ModelGraph, TokensNeedAnEmbedding) {
  ModelGraph graph;
  const NodeId tokens = graph.add("tokens", sequence(5), {});
  EXPECT_NE(error_of(graph, Linear{3, true, {}}, {tokens}).find("Put an embedding between"),
            std::string::npos);
  EXPECT_EQ(graph.node(graph.add("e", Embedding{9, 4}, {tokens})).output, (Shape{5, 4}));
}

TEST(ModelGraph, TiedWeightsAreCheckedAndNotOwned) {
  ModelGraph graph;
  const NodeId tokens = graph.add("tokens", sequence(5), {});
  const NodeId x = graph.add("e", Embedding{9, 4}, {tokens});
  EXPECT_NE(error_of(graph, Linear{8, false, "e"}, {x}).find("tied weights have equal shapes"),
            std::string::npos);
  const NodeId head = graph.add("head", Linear{9, false, "e"}, {x});
  EXPECT_TRUE(graph.node(head).parameters.empty());
  EXPECT_EQ(graph.parameter_count(), 36u);
}

TEST(ModelGraph, NothingFollowsTheLoss) {
  ModelGraph graph;
  const NodeId picture = graph.add("picture", image(1, 2, 2), {});
  const NodeId loss = graph.add("loss", CrossEntropy{}, {graph.add("flat", Flatten{}, {picture})});
  EXPECT_EQ(graph.loss(), loss);
  EXPECT_NE(error_of(graph, Relu{}, {loss}).find("nothing follows the loss"), std::string::npos);
}

TEST(ModelGraph, NamesAreUniqueAndFound) {
  ModelGraph graph;
  const NodeId picture = graph.add("picture", image(1, 2, 2), {});
  EXPECT_THROW(graph.add("picture", Relu{}, {picture}), UserError);
  EXPECT_THROW(graph.add("", Relu{}, {picture}), UserError);
  EXPECT_EQ(graph.find("picture"), picture);
  EXPECT_EQ(graph.input(), picture);
  try {
    graph.find("pictures");
    FAIL() << "found";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'picture'?"), std::string::npos);
  }
  EXPECT_THROW(graph.node(NodeId(7)), UserError);
  EXPECT_THROW(graph.add("x", Relu{}, {NodeId(-1)}), UserError);
  EXPECT_THROW(graph.loss(), UserError);
  EXPECT_THROW(ModelGraph().input(), UserError);
}

TEST(ModelGraph, ConsumersAreListedOnceInOrder) {
  ModelGraph graph;
  const NodeId picture = graph.add("picture", image(1, 2, 2), {});
  const NodeId a = graph.add("a", Relu{}, {picture});
  const NodeId twice = graph.add("twice", Add{}, {picture, picture});
  EXPECT_EQ(graph.consumers(picture), (std::vector<NodeId>{a, twice}));
  EXPECT_TRUE(graph.consumers(twice).empty());
}

TEST(ModelGraph, GradientsStartAtTheFirstTrainableTensor) {
  ModelGraph graph;
  const NodeId picture = graph.add("picture", image(1, 2, 2), {});
  const NodeId dropped = graph.add("dropped", Dropout{0.5}, {picture});
  const NodeId conv = graph.add("conv", Conv2d{3}, {dropped});
  const NodeId active = graph.add("active", Relu{}, {conv});
  EXPECT_FALSE(graph.node(dropped).differentiable);
  EXPECT_TRUE(graph.node(conv).differentiable);
  EXPECT_TRUE(graph.node(active).differentiable);
}

}  // namespace
}  // namespace heteroperf
