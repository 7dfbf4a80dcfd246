#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/product.hpp"
#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "tests/unit/runners/engine/operators/small_graphs.hpp"

namespace heteroperf {
namespace {

/// Builds a graph of the kinds under test from random extents.
using Build = void (*)(ModelGraph& graph, Draw& draw);

struct KindCase {
  const char* name;
  Build build;
};

Conv2d conv(std::int64_t out, std::array<std::int64_t, 2> kernel,
            std::array<std::int64_t, 2> stride, std::array<std::int64_t, 2> padding,
            std::int64_t groups, bool bias) {
  return {out, kernel, stride, padding, groups, bias};
}

const KindCase kinds[] = {
    {"linear_vector", [](ModelGraph& g, Draw& d) { add_vector(g, d(1, 40)); }},
    {"linear_sequence",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_sequence(g, d(1, 9), d(1, 33));
       g.add("bias", Linear{d(1, 20), true, {}}, {x});
       g.add("plain", Linear{d(1, 20), false, {}}, {x});
       g.add("tied", Linear{11, false, "embedding"}, {x});
       g.add("tied_bias", Linear{11, true, "embedding"}, {x});
     }},
    {"conv2d",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 5), d(3, 12), d(3, 12));
       g.add("bias", conv(d(1, 7), {3, 3}, {2, 2}, {1, 1}, 1, true), {x});
       g.add("oblong", conv(d(1, 7), {1, 3}, {2, 1}, {1, 2}, 1, true), {x});
       g.add("pointwise", conv(d(1, 7), {1, 1}, {1, 1}, {0, 0}, 1, true), {x});
       g.add("strided_pointwise", conv(d(1, 7), {1, 1}, {2, 2}, {0, 0}, 1, false), {x});
       g.add("wide_padding", conv(d(1, 7), {7, 7}, {2, 2}, {3, 3}, 1, false), {x});
     }},
    {"conv2d_single_pixel",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 40), 1, 1);
       g.add("conv", conv(d(1, 40), {3, 3}, {1, 1}, {1, 1}, 1, false), {x});
     }},
    {"conv2d_large_images",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 3), d(18, 22), d(18, 22));
       g.add("plain", conv(d(1, 5), {3, 3}, {1, 1}, {1, 1}, 1, false), {x});
       g.add("bias", conv(d(1, 5), {3, 3}, {1, 1}, {1, 1}, 1, true), {x});
       g.add("pointwise", conv(d(1, 5), {1, 1}, {1, 1}, {0, 0}, 1, true), {x});
     }},
    {"conv2d_groups",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, 4, d(3, 9), d(3, 9));
       g.add("two", conv(6, {3, 3}, {1, 1}, {1, 1}, 2, true), {x});
       g.add("depthwise", conv(4, {3, 3}, {2, 2}, {1, 1}, 4, false), {x});
     }},
    {"batch_norm",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 70), d(1, 9), d(2, 9));
       g.add("norm", BatchNorm{}, {x});
       g.add("slow", BatchNorm{1e-3, 0.01}, {x});
     }},
    {"row_norms",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_sequence(g, d(1, 30), d(2, 70));
       g.add("layer_norm", LayerNorm{}, {x});
       g.add("layer_norm_plain", LayerNorm{1e-3, false}, {x});
       g.add("rms_norm", RmsNorm{}, {x});
     }},
    {"activations",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 9), d(1, 9), d(1, 9));
       g.add("relu", Relu{}, {x});
       g.add("gelu", Gelu{GeluForm::erf}, {x});
       g.add("gelu_tanh", Gelu{GeluForm::tanh}, {x});
       g.add("silu", Silu{}, {x});
       g.add("tanh", Tanh{}, {x});
     }},
    {"combining",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 9), d(1, 9), d(1, 9));
       const NodeId a = g.add("a", Relu{}, {x}), b = g.add("b", Tanh{}, {x});
       g.add("add", Add{}, {a, b});
       g.add("add_three", Add{}, {a, b, x});
       g.add("twice", Add{}, {a, a});
       g.add("multiply", Multiply{}, {a, b});
       g.add("square", Multiply{}, {a, a});
       const NodeId wide = g.add("wide", conv(d(1, 9), {1, 1}, {1, 1}, {0, 0}, 1, false), {x});
       g.add("concat", Concat{}, {a, wide, b});
     }},
    {"concat_sequences",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_sequence(g, d(2, 9), d(1, 20));
       const NodeId token = g.add("token", ClassToken{}, {x});
       g.add("concat", Concat{}, {x, token});
     }},
    {"pools",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 9), d(4, 11), d(4, 11));
       g.add("max", MaxPool{}, {x});
       g.add("max_overlapping", MaxPool{{3, 3}, {2, 2}, {1, 1}}, {x});
       g.add("max_oblong", MaxPool{{3, 2}, {1, 2}, {1, 0}}, {x});
       g.add("average", AvgPool{}, {x});
       g.add("average_padded", AvgPool{{3, 3}, {2, 2}, {1, 1}}, {x});
       g.add("global", GlobalAvgPool{}, {x});
     }},
    {"pools_of_many_channels",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(257, 300), 4, 4);
       g.add("max", MaxPool{{3, 3}, {2, 2}, {1, 1}}, {x});
       g.add("global", GlobalAvgPool{}, {x});
     }},
    {"reshaping",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 9), d(1, 9), d(1, 9));
       g.add("flatten", Flatten{}, {x});
       const NodeId sequence = g.add("sequence", ToSequence{}, {x});
       const NodeId token = g.add("class_token", ClassToken{}, {sequence});
       g.add("first", TakeToken{0}, {token});
       g.add("last", TakeToken{g.node(token).output[0] - 1}, {token});
     }},
    {"tables",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t length = d(1, 20);
       const NodeId x = add_sequence(g, length, d(1, 70));
       g.add("positions", PositionEmbedding{length + d(0, 5)}, {x});
       g.add("types", TypeEmbedding{d(1, 3)}, {x});
     }},
    {"rotary",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t kv = d(1, 2), heads = kv * d(1, 3), width = 2 * d(1, 9);
       const NodeId x = add_sequence(g, d(1, 20), (heads + 2 * kv) * width);
       g.add("rotary", Rotary{heads, kv, width, 10000.0}, {x});
       g.add("slow", Rotary{heads, kv, width, 500000.0}, {x});
     }},
    {"attention",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t heads = d(1, 4), width = d(1, 20);
       const NodeId x = add_sequence(g, d(1, 70), 3 * heads * width);
       g.add("causal", Attention{heads, heads, width, true, false}, {x});
       g.add("full", Attention{heads, heads, width, false, false}, {x});
       g.add("alibi", Attention{heads, heads, width, true, true}, {x});
       g.add("alibi_full", Attention{heads, heads, width, false, true}, {x});
     }},
    {"attention_grouped",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t kv = d(1, 3), heads = kv * d(2, 3), width = d(1, 16);
       const NodeId x = add_sequence(g, d(1, 40), (heads + 2 * kv) * width);
       g.add("causal", Attention{heads, kv, width, true, false}, {x});
       g.add("alibi", Attention{heads, kv, width, true, true}, {x});
     }},
    {"cross_attention",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t kv = d(1, 3), heads = kv * d(1, 3), width = d(1, 16);
       const NodeId q = add_sequence(g, d(1, 40), heads * width);
       const NodeId tokens = g.add("others", Input{InputKind::tokens, 0, 0, 0, d(1, 50)}, {});
       const NodeId kv_rows = g.add("rows", Embedding{11, 2 * kv * width}, {tokens});
       g.add("cross", CrossAttention{heads, kv, width}, {q, kv_rows});
     }},
    {"token_rows",
     [](ModelGraph& g, Draw& d) {
       const std::int64_t features = d(1, 33), rows = d(1, 3);
       const NodeId x = add_sequence(g, d(4, 30), features);
       g.add("pool", TokenPool{3}, {x, g.find("sample")});
       g.add("nowhere", TokenPool{11}, {x, g.find("sample")});
       const NodeId captions = g.add("captions", Input{InputKind::tokens, 0, 0, 0, rows, 1}, {});
       const NodeId items = g.add("items", Embedding{11, features}, {captions});
       g.add("insert", InsertTokens{2}, {x, g.find("sample"), items});
       g.add("no_place", InsertTokens{11}, {x, g.find("sample"), items});
     }},
    {"dropout",
     [](ModelGraph& g, Draw& d) {
       const NodeId x = add_images(g, d(1, 9), d(1, 20), d(1, 20));
       g.add("some", Dropout{0.3}, {x});
       g.add("none", Dropout{0.0}, {x});
     }},
};

struct TypeCase {
  const char* name;
  at::ScalarType type;
  double tolerance;
  ProductWay way = ProductWay::libtorch;  ///< products that have a choice take it
};
const TypeCase types[] = {{"float64", at::kDouble, 1e-10},
                          {"float32", at::kFloat, 2e-5},
                          {"float32_own", at::kFloat, 2e-5, ProductWay::own},
                          {"float32_mkl", at::kFloat, 2e-5, ProductWay::mkl},
                          {"bfloat16", at::kBFloat16, 0.05}};

class NodeKinds : public testing::TestWithParam<std::tuple<KindCase, TypeCase>> {};

TEST_P(NodeKinds, AgreeWithAutograd) {
  const auto& [kind, type] = GetParam();
  const ProductChoices choices(type.way);
  const ProductScope scope(&choices);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Draw draw(seed);
    ModelGraph graph;
    kind.build(graph, draw);
    CheckSettings settings;
    settings.type = type.type;
    settings.tolerance = type.tolerance;
    settings.batch = draw(2, 5);
    settings.seed = seed;
    check_groups(graph, settings);
  }
}

TEST_P(NodeKinds, AgreeWithAutogradWhenFused) {
  const auto& [kind, type] = GetParam();
  const ProductChoices choices(type.way);
  const ProductScope scope(&choices);
  Draw draw(11);
  ModelGraph graph;
  kind.build(graph, draw);
  CheckSettings settings;
  settings.type = type.type;
  settings.tolerance = type.tolerance;
  settings.fusion = Fusion::on;
  check_groups(graph, settings);
}

INSTANTIATE_TEST_SUITE_P(All, NodeKinds,
                         testing::Combine(testing::ValuesIn(kinds), testing::ValuesIn(types)),
                         [](const auto& chosen) {
                           return std::string(std::get<0>(chosen.param).name) + "_" +
                                  std::get<1>(chosen.param).name;
                         });

class Loss : public testing::TestWithParam<TypeCase> {};

TEST_P(Loss, AgreesWithAutograd) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Draw draw(seed);
    for (const double smoothing : {0.0, 0.1}) {
      ModelGraph vectors, sequences;
      vectors.add("loss", CrossEntropy{smoothing}, {add_vector(vectors, draw(1, 40))});
      sequences.add("loss", CrossEntropy{smoothing}, {add_sequence(sequences, 5, draw(1, 40))});
      for (const ModelGraph* graph : {&vectors, &sequences}) {
        for (const Fusion fusion : {Fusion::off, Fusion::on}) {
          CheckSettings settings;
          settings.type = GetParam().type;
          settings.tolerance = GetParam().tolerance;
          settings.fusion = fusion;
          settings.seed = seed;
          settings.loss_scale = 0.375;
          check_groups(*graph, settings);
        }
      }
    }
  }
}

TEST_P(Loss, OverSomeTargetsAgreesWithAutograd) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Draw draw(seed);
    const std::int64_t features = draw(2, 40);
    for (const Attributes& loss : {Attributes(CrossEntropy{0.1}), Attributes(SquaredError{})}) {
      ModelGraph vectors, sequences;
      vectors.add("loss", loss, {add_vector(vectors, features)});
      sequences.add("loss", loss, {add_sequence(sequences, 5, features)});
      for (const ModelGraph* graph : {&vectors, &sequences}) {
        for (const std::int64_t uncounted : {0, 2}) {
          CheckSettings settings;
          settings.type = GetParam().type;
          settings.tolerance = GetParam().tolerance;
          settings.seed = seed;
          settings.loss_scale = 0.375;
          settings.uncounted = uncounted;
          check_groups(*graph, settings);
        }
      }
    }
  }
}

TEST_P(Loss, OfPairsAgreesWithAutograd) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Draw draw(seed);
    ModelGraph graph;
    const NodeId a = add_vector(graph, draw(1, 40));
    const NodeId b = graph.add("partners", Tanh{}, {a});
    graph.add("loss", Contrastive{}, {a, b});
    CheckSettings settings;
    settings.type = GetParam().type;
    settings.tolerance = GetParam().tolerance;
    settings.batch = draw(1, 9);
    settings.seed = seed;
    settings.loss_scale = 0.375;
    check_groups(graph, settings);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Loss, testing::ValuesIn(types),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

TEST(MakeOperator, RefusesTheSampleAndOddTypes) {
  ModelGraph graph;
  const NodeId x = add_images(graph, 1, 2, 2);
  const NodeId relu = graph.add("relu", Relu{}, {x});
  EXPECT_THROW(make_operator(graph, x, at::kFloat), UserError);
  EXPECT_THROW(make_operator(graph, relu, at::kHalf), UserError);
  EXPECT_THROW(make_operator(graph, relu, at::kLong), UserError);
}

TEST(Indices, OutsideTheTableAreNamed) {
  ModelGraph graph;
  const NodeId table = add_sequence(graph, 3, 4);
  const auto op = make_operator(graph, table, at::kFloat);
  const Tensors parameters{random_tensor({11, 4}, at::kFloat, 1)};
  Tensors saved;
  for (const std::int64_t wrong : {std::int64_t{11}, std::int64_t{-1}}) {
    at::Tensor tokens = random_indices({2, 3}, 11, 1);
    tokens.data_ptr<std::int64_t>()[4] = wrong;
    try {
      op->forward({tokens}, parameters, saved, {});
      FAIL() << "token " << wrong << " was accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(wrong)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Indices, TargetsBeyondTheClassesAreNamed) {
  ModelGraph graph;
  const NodeId loss = graph.add("loss", CrossEntropy{}, {add_vector(graph, 4)});
  Tensors saved;
  at::Tensor targets = random_indices({3}, 4, 1);
  targets.data_ptr<std::int64_t>()[2] = 4;
  EXPECT_THROW(make_operator(graph, loss, at::kFloat)
                   ->forward({random_tensor({3, 4}, at::kFloat, 1), targets}, {}, saved, {}),
               UserError);
}

TEST(MakeOperator, RefusesPoolingWindowsOfMoreThan256) {
  ModelGraph graph;
  const NodeId pool =
      graph.add("pool", MaxPool{{17, 17}, {1, 1}, {0, 0}}, {add_images(graph, 1, 20, 20)});
  EXPECT_THROW(make_operator(graph, pool, at::kFloat), UserError);
}

}  // namespace
}  // namespace heteroperf
