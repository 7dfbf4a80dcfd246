#include "runners/plan/tensor/tensor_parallel.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

using Interval = ParameterShard::Interval;

// ---- models of every form, small; 12 heads for degrees 1 to 4

GptShape decoder() {
  GptShape shape;
  shape.layers = 2;
  shape.width = 48;
  shape.heads = 12;
  shape.vocabulary = 101;
  shape.length = 10;
  shape.dropout = 0.1;
  return shape;
}
ModelGraph gpt_untied() { return gpt(decoder()); }
ModelGraph mpt_like() {
  GptShape shape = decoder();
  shape.head = HeadKind::tied;
  shape.position_kind = PositionKind::alibi;
  shape.bias = false;
  return gpt(shape);
}
ModelGraph llama_like(std::int64_t heads = 24, std::int64_t kv_heads = 12) {
  GptShape shape = decoder();
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.mlp_width = 37;
  shape.norm = NormKind::rms_norm;
  shape.mlp = MlpKind::swiglu;
  shape.position_kind = PositionKind::rotary;
  shape.bias = false;
  return gpt(shape);
}
ModelGraph bert_like() {
  BertShape shape;
  shape.layers = 2;
  shape.width = 48;
  shape.vocabulary = 57;
  shape.length = shape.positions = 9;
  return bert(shape);
}
ModelGraph vit_like() {
  VitShape shape;
  shape.input = {InputKind::images, 3, 32, 32, 0};
  shape.classes = 10;
  shape.patch = 8;
  shape.layers = 2;
  shape.width = 48;
  return vit(shape);
}

ModelGraph streams_like() {
  return co_attention({.image = {InputKind::images, 3, 24, 24, 0},
                       .text_input = {InputKind::tokens, 0, 0, 0, 9},
                       .patch = 8,
                       .vision = {2, 48, 12},
                       .text = {2, 72, 12},
                       .vocabulary = 57,
                       .embedding = 50});
}

struct ModelCase {
  const char* name;
  ModelGraph (*build)();
};
const ModelCase model_cases[] = {
    {"gpt", gpt_untied}, {"mpt", mpt_like}, {"llama", [] { return llama_like(); }},
    {"bert", bert_like}, {"vit", vit_like}, {"streams", streams_like}};

std::vector<TensorShard> shards_of(const ModelGraph& graph, int degree) {
  std::vector<TensorShard> shards;
  for (int index = 0; index < degree; ++index) shards.push_back(tensor_shard(graph, degree, index));
  return shards;
}

std::size_t at(const ModelGraph& graph, const char* name) {
  return static_cast<std::size_t>(graph.find(name).value());
}

class EveryModel : public testing::TestWithParam<std::tuple<ModelCase, int>> {
 protected:
  const ModelGraph graph = std::get<0>(GetParam()).build();
  const int degree = std::get<1>(GetParam());
  const std::vector<TensorShard> shards = shards_of(graph, degree);
};

TEST_P(EveryModel, KeepsNodesInTheirPlaces) {
  for (const TensorShard& shard : shards) {
    ASSERT_EQ(shard.graph.nodes().size(), graph.nodes().size());
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      const Node &full = graph.nodes()[n], &local = shard.graph.nodes()[n];
      EXPECT_EQ(local.name, full.name);
      EXPECT_EQ(local.inputs, full.inputs);
      EXPECT_EQ(local.branch, full.branch);
      EXPECT_EQ(local.differentiable, full.differentiable);
      EXPECT_EQ(shard.parameters[n].size(), local.parameters.size());
    }
    EXPECT_EQ(shard.graph.hash() == graph.hash(), degree == 1);
  }
}

/// Checks that the intervals of all ranks cover [0, extent) once.
void expect_cover(std::vector<Interval> intervals, std::int64_t extent, const std::string& what) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.first < b.first; });
  std::int64_t reached = 0;
  for (const Interval& interval : intervals) {
    EXPECT_EQ(interval.first, reached) << what;
    EXPECT_GT(interval.count, 0) << what;
    reached = interval.first + interval.count;
  }
  EXPECT_EQ(reached, extent) << what;
}

TEST_P(EveryModel, CoversEveryParameterOnceOrHasAllOfIt) {
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    for (std::size_t i = 0; i < graph.nodes()[n].parameters.size(); ++i) {
      const Parameter& full = graph.nodes()[n].parameters[i];
      const std::string what = graph.nodes()[n].name + "." + full.name;
      std::vector<Interval> intervals;
      std::size_t whole = 0, held = 0, dim = 0;
      for (const TensorShard& shard : shards) {
        if (i >= shard.parameters[n].size()) continue;
        ++held;
        const ParameterShard& part = shard.parameters[n][i];
        Shape expected = full.shape;
        if (part.whole()) {
          ++whole;
        } else {
          dim = part.dim;
          expected[dim] = 0;
          for (const Interval& interval : part.intervals) expected[dim] += interval.count;
          intervals.insert(intervals.end(), part.intervals.begin(), part.intervals.end());
        }
        EXPECT_EQ(shard.graph.nodes()[n].parameters[i].shape, expected) << what;
      }
      if (whole == 0) {
        EXPECT_EQ(held, shards.size()) << what;
        expect_cover(intervals, full.shape[dim], what);
      } else if (shards[0].output_is_partial[n]) {  // a row linear's bias
        EXPECT_EQ(held, 1u) << what;
        EXPECT_EQ(shards[0].parameters[n].size(), 2u) << what;
      } else {
        EXPECT_EQ(whole, shards.size()) << what;
      }
    }
  }
}

TEST_P(EveryModel, SharesTheOperationsOfWhatIsCut) {
  Ops cut, all;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const NodeId id(static_cast<std::int32_t>(n));
    const Ops full = strict_node_ops(graph, id).train();
    all += full;
    Ops sum;
    for (const TensorShard& shard : shards) sum += strict_node_ops(shard.graph, id).train();
    const bool shared = shards[0].output_is_sharded[n] || shards[0].output_is_partial[n];
    EXPECT_EQ(sum, shared ? full : full * static_cast<std::uint64_t>(degree))
        << graph.nodes()[n].name;
    if (shared) cut += full;
  }
  if (degree > 1) {
    EXPECT_GT(cut.to_double(), 0.9 * all.to_double());
  }
}

TEST_P(EveryModel, CutsOutputsIntoColumns) {
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    std::vector<Interval> columns;
    for (const TensorShard& shard : shards) {
      std::int64_t width = 0;
      for (const Interval& interval : shard.columns[n]) width += interval.count;
      columns.insert(columns.end(), shard.columns[n].begin(), shard.columns[n].end());
      EXPECT_EQ(shard.output_is_sharded[n], !shard.columns[n].empty());
      EXPECT_FALSE(shard.output_is_sharded[n] && shard.output_is_partial[n]);
      EXPECT_FALSE(shard.output_is_sharded[n] && shard.gradient_is_partial[n]);
      Shape expected = graph.nodes()[n].output;
      if (width > 0) expected.back() = width;
      EXPECT_EQ(shard.graph.nodes()[n].output, expected);
    }
    const Node& node = graph.nodes()[n];
    if (!columns.empty()) expect_cover(columns, node.output.back(), node.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Degrees, EveryModel,
                         testing::Combine(testing::ValuesIn(model_cases),
                                          testing::Values(1, 2, 3, 4)),
                         [](const auto& chosen) {
                           return fmt::format("{}_{}", std::get<0>(chosen.param).name,
                                              std::get<1>(chosen.param));
                         });

// ---- single properties

TEST(TensorShard, OfOneRankIsTheModel) {
  const ModelGraph graph = bert_like();
  const TensorShard shard = tensor_shard(graph, 1, 0);
  const std::vector<bool> none(graph.nodes().size());
  EXPECT_EQ(shard.graph.hash(), graph.hash());
  EXPECT_EQ(shard.output_is_partial, none);
  EXPECT_EQ(shard.gradient_is_partial, none);
  EXPECT_EQ(shard.output_is_sharded, none);
  EXPECT_EQ(shard.vocabulary, std::vector<std::int64_t>(graph.nodes().size()));
  for (const auto& node : shard.parameters) {
    for (const ParameterShard& parameter : node) EXPECT_TRUE(parameter.whole());
  }
}

TEST(TensorShard, TakesQueriesKeysAndValuesOfItsHeads) {
  const ModelGraph graph = llama_like(8, 4);  // heads of 6
  const TensorShard shard = tensor_shard(graph, 2, 1);
  const std::size_t qkv = at(graph, "block0.attn.qkv"), proj = at(graph, "block0.attn.proj");
  const std::vector<Interval> packed = {{24, 24}, {60, 12}, {84, 12}};
  EXPECT_EQ(shard.columns[qkv], packed);
  EXPECT_EQ(shard.columns[at(graph, "block0.attn.rotary")], packed);
  EXPECT_EQ(shard.parameters[qkv][0], (ParameterShard{0, packed}));
  EXPECT_EQ(shard.parameters[proj][0], (ParameterShard{1, {{24, 24}}}));
  const auto& core =
      std::get<Attention>(shard.graph.nodes()[at(graph, "block0.attn.core")].attributes);
  EXPECT_EQ(core.heads, 4);
  EXPECT_EQ(core.kv_heads, 2);
  EXPECT_EQ(core.all_heads, 0);
}

// Parts of sequences do all operations of the model once, tensor-parallel ranks or not.
TEST(TensorShard, PartsOfSequencesShareTheWork) {
  GptShape shape = decoder();
  shape.kv_heads = 4;
  shape.length = 24;
  shape.position_kind = PositionKind::rotary;
  const ModelGraph graph = gpt(shape);
  const std::int64_t length = shape.length;
  const std::size_t core = at(graph, "block0.attn.core");
  for (const int parts : {1, 2, 3}) {
    ASSERT_TRUE((SequencePart{0, parts}.divides(length))) << length;
    StrictOps sum;
    std::set<std::int64_t> positions;
    for (int i = 0; i < parts; ++i) {
      const SequencePart part{i, parts};
      const TensorShard shard = tensor_shard(graph, 1, 0, part);
      EXPECT_EQ(shard.graph.nodes()[core].output.front() * parts, length);
      SequencePart named = part;
      if (parts > 1) named.length = length;
      EXPECT_EQ(std::get<Attention>(shard.graph.nodes()[core].attributes).part, named);
      for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
        const StrictOps ops = strict_node_ops(shard.graph, NodeId(n));
        sum.forward += ops.forward;
        sum.input_gradient += ops.input_gradient;
        sum.weight_gradient += ops.weight_gradient;
      }
      for (const SequencePart::Chunk& chunk : part.chunks(length / parts)) {
        for (std::int64_t at = chunk.first; at < chunk.end(); ++at) positions.insert(at);
      }
    }
    EXPECT_EQ(sum.train(), strict_train_ops(graph, 1)) << parts;
    EXPECT_EQ(std::ssize(positions), length) << parts;
  }
}

TEST(TensorShard, TakesKeysAndValuesOfAnotherStreamForItsQueries) {
  const ModelGraph graph = streams_like();  // heads of 4 and 6
  const TensorShard shard = tensor_shard(graph, 2, 1);
  const std::size_t kv = at(graph, "text.exchange0.attn.kv");
  const std::vector<Interval> packed = {{36, 36}, {108, 36}};
  EXPECT_EQ(shard.columns[kv], packed);
  EXPECT_EQ(shard.parameters[kv][0], (ParameterShard{0, packed}));
  EXPECT_EQ(shard.columns[at(graph, "text.exchange0.attn.q")], (std::vector<Interval>{{36, 36}}));
  EXPECT_EQ(shard.columns[at(graph, "text.exchange0.attn.core")],
            (std::vector<Interval>{{36, 36}}));
  const auto& core = std::get<CrossAttention>(
      shard.graph.nodes()[at(graph, "vision.exchange0.attn.core")].attributes);
  EXPECT_EQ(core.heads, 6);
  EXPECT_EQ(core.kv_heads, 6);
  EXPECT_TRUE(shard.gradient_is_partial[at(graph, "text.exchange0.attn.others_norm")]);
  EXPECT_FALSE(shard.gradient_is_partial[at(graph, "vision.block1.mlp_add")]);
  EXPECT_EQ(shard.columns[at(graph, "text.both")], (std::vector<Interval>{{25, 25}}));
}

// One tensor cannot be cut as queries and as keys and values.
TEST(TensorShard, LeavesQueriesThatAreKeysAndValuesWhole) {
  ModelGraph graph;
  NodeId x = graph.add("input", Input{InputKind::tokens, 0, 0, 0, 4}, {});
  x = graph.add("embedding", Embedding{20, 8}, {x});
  const NodeId rows = graph.add("rows", Linear{8, true, {}}, {x});
  x = graph.add("cross", CrossAttention{4, 2, 2}, {rows, rows});
  x = graph.add("up", Linear{64, true, {}}, {x});
  x = graph.add("gelu", Gelu{}, {x});
  graph.add("loss", CrossEntropy{}, {graph.add("down", Linear{8, true, {}}, {x})});
  const TensorShard shard = tensor_shard(graph, 2, 0);
  EXPECT_FALSE(shard.output_is_sharded[at(graph, "rows")]);
  EXPECT_FALSE(shard.output_is_sharded[at(graph, "cross")]);
  EXPECT_TRUE(shard.output_is_sharded[at(graph, "gelu")]);
}

TEST(TensorShard, KnowsTheSlopesOfItsHeads) {
  const ModelGraph graph = mpt_like();
  const TensorShard shard = tensor_shard(graph, 3, 2);
  const auto& core =
      std::get<Attention>(shard.graph.nodes()[at(graph, "block1.attn.core")].attributes);
  EXPECT_EQ(core.first_head, 8);
  EXPECT_EQ(core.all_heads, 12);
}

TEST(TensorShard, CutsVocabularyAndWidthsUnevenly) {
  const ModelGraph graph = mpt_like();
  const TensorShard shard = tensor_shard(graph, 4, 1);
  for (const char* name : {"embedding", "head", "loss"}) {
    EXPECT_EQ(shard.first_of_vocabulary[at(graph, name)], 25) << name;
    EXPECT_EQ(shard.vocabulary[at(graph, name)], 101) << name;
  }
  EXPECT_EQ(std::get<Embedding>(shard.graph.nodes()[at(graph, "embedding")].attributes).vocabulary,
            25);
  EXPECT_EQ(shard.vocabulary[at(graph, "final_norm")], 0);
  const ModelGraph pooled = bert_like();  // its logits are an activation's output
  for (const char* name : {"pooler_tanh", "loss"}) {
    EXPECT_EQ(tensor_shard(pooled, 2, 1).first_of_vocabulary[at(pooled, name)], 24) << name;
  }
  const ModelGraph swiglu = llama_like();
  EXPECT_EQ(tensor_shard(swiglu, 4, 3).columns[at(swiglu, "block0.mlp.multiply")],
            (std::vector<Interval>{{27, 10}}));
}

TEST(TensorShard, KeepsTheSumsApart) {
  const ModelGraph graph = gpt_untied();
  const TensorShard shard = tensor_shard(graph, 2, 0);
  const auto names = [&](const std::vector<bool>& flags) {
    std::vector<std::string> set;
    for (std::size_t n = 0; n < flags.size(); ++n) {
      if (flags[n]) set.push_back(graph.nodes()[n].name);
    }
    return set;
  };
  EXPECT_EQ(names(shard.output_is_partial),
            (std::vector<std::string>{"embedding", "block0.attn.proj", "block0.mlp.down",
                                      "block1.attn.proj", "block1.mlp.down"}));
  EXPECT_EQ(names(shard.gradient_is_partial),
            (std::vector<std::string>{"block0.attn_norm", "block0.mlp_norm", "block1.attn_norm",
                                      "block1.mlp_norm", "final_norm"}));
  EXPECT_EQ(names(shard.splits_inputs),
            (std::vector<std::string>{"block0.attn.qkv", "block0.mlp.up", "block1.attn.qkv",
                                      "block1.mlp.up", "head"}));
}

TEST(TensorShard, SumsAGradientInTheStageThatSplitsIt) {
  const ModelGraph graph = bert_like();
  const TensorShard shard = tensor_shard(graph, 2, 0);
  const std::size_t normed = at(graph, "block0.attn_norm");
  std::vector<StageId> stage_of(graph.nodes().size());
  const std::size_t up = at(graph, "block0.mlp.up");
  std::fill(stage_of.begin() + static_cast<std::ptrdiff_t>(up), stage_of.end(), StageId(1));
  EXPECT_TRUE(shard.gradient_is_partial[normed]);
  EXPECT_FALSE(gradient_is_partial_within(shard, stage_of, 0)[normed]);
  EXPECT_TRUE(gradient_is_partial_within(shard, stage_of, 1)[normed]);
  EXPECT_TRUE(gradient_is_partial_within(shard, stage_of, 0)[at(graph, "embedding_norm")]);
}

// ---- what stays whole

ModelGraph tokens(NodeId& x) {
  ModelGraph graph;
  x = graph.add("input", Input{InputKind::tokens, 0, 0, 0, 4}, {});
  x = graph.add("embedding", Embedding{20, 8}, {x});
  return graph;
}
NodeId add_mlp(ModelGraph& graph, const std::string& prefix, NodeId x) {
  x = graph.add(prefix + ".up", Linear{64, true, {}}, {x});
  x = graph.add(prefix + ".gelu", Gelu{}, {x});
  return graph.add(prefix + ".down", Linear{8, true, {}}, {x});
}

TEST(TensorShard, LeavesLinearsWholeThatLeadToWholeTensors) {
  NodeId x(0);
  ModelGraph graph = tokens(x);
  const NodeId mixed = graph.add("mixed", Linear{8, true, {}}, {x});
  x = graph.add("residual", Add{}, {x, mixed});
  const NodeId normed = graph.add("normed", Linear{8, true, {}}, {x});
  x = graph.add("norm", LayerNorm{}, {normed});
  x = add_mlp(graph, "mlp", x);
  graph.add("loss", CrossEntropy{}, {x});
  const TensorShard shard = tensor_shard(graph, 2, 0);
  for (const char* name : {"mixed", "residual", "normed", "norm"}) {
    EXPECT_FALSE(shard.output_is_sharded[at(graph, name)]) << name;
    EXPECT_FALSE(shard.gradient_is_partial[at(graph, name)] && std::string(name) != "norm") << name;
  }
  EXPECT_TRUE(shard.output_is_sharded[at(graph, "mlp.gelu")]);
  EXPECT_TRUE(shard.output_is_partial[at(graph, "mlp.down")]);
  EXPECT_EQ(shard.vocabulary[at(graph, "loss")], 0);
}

TEST(TensorShard, LeavesBothSidesOfAProductWholeWhenOneIs) {
  NodeId x(0);
  ModelGraph graph = tokens(x);
  const NodeId gate = graph.add("gate", Linear{8, true, {}}, {x});
  const NodeId product = graph.add("product", Multiply{}, {graph.add("silu", Silu{}, {gate}), x});
  x = add_mlp(graph, "mlp", product);
  graph.add("loss", CrossEntropy{}, {x});
  const TensorShard shard = tensor_shard(graph, 2, 1);
  EXPECT_FALSE(shard.output_is_sharded[at(graph, "gate")]);
  EXPECT_FALSE(shard.output_is_sharded[at(graph, "product")]);
  EXPECT_TRUE(shard.output_is_sharded[at(graph, "mlp.up")]);
}

TEST(TensorShard, CutsATableOnlyWithAllThatIsTiedToIt) {
  NodeId x(0);
  ModelGraph graph = tokens(x);
  x = add_mlp(graph, "mlp", x);
  const NodeId logits = graph.add("head", Linear{20, false, "embedding"}, {x});
  const NodeId normed = graph.add("other_head", Linear{20, false, "embedding"}, {x});
  x = graph.add("sum", Add{}, {logits, graph.add("norm", LayerNorm{}, {normed})});
  graph.add("loss", CrossEntropy{}, {x});
  const TensorShard shard = tensor_shard(graph, 2, 1);
  for (const char* name : {"embedding", "head", "other_head"}) {
    EXPECT_FALSE(shard.output_is_sharded[at(graph, name)]) << name;
    EXPECT_FALSE(shard.output_is_partial[at(graph, name)]) << name;
  }
}

TEST(TensorShard, LeavesWholeWhatHasFewerColumnsThanRanks) {
  VitShape shape;
  shape.input = {InputKind::images, 3, 16, 16, 0};
  shape.classes = 3;
  shape.patch = 8;
  shape.layers = 1;
  shape.width = 48;
  const ModelGraph graph = vit(shape);
  EXPECT_TRUE(tensor_shard(graph, 3, 0).output_is_sharded[at(graph, "head")]);
  EXPECT_FALSE(tensor_shard(graph, 4, 0).output_is_sharded[at(graph, "head")]);
}

TEST(TensorShard, CutsTheLadder) {
  for (const std::string& name : llm_ladder()) {
    const ModelGraph graph = build_model(name);
    const auto& heads =
        std::get<Attention>(graph.nodes()[at(graph, "block0.attn.core")].attributes);
    if (heads.heads % 4 != 0) continue;
    const TensorShard shard = tensor_shard(graph, 4, 3);
    EXPECT_EQ(shard.graph.nodes()[at(graph, "block0.mlp.up")].output.back() * 4,
              graph.nodes()[at(graph, "block0.mlp.up")].output.back())
        << name;
  }
}

// ---- refusals

std::vector<std::string> cut_problems_of(const ModelGraph& graph, int degree) {
  std::vector<std::string> texts;
  ProblemList problems;
  check_tensor_degree(graph, degree, problems);
  for (const Problem& problem : problems.problems()) texts.push_back(problem.text());
  return texts;
}

TEST(TensorShard, NamesEverythingThatDoesNotFit) {
  NodeId x(0);
  ModelGraph graph = tokens(x);
  x = graph.add("qkv", Linear{24, true, {}}, {x});
  x = graph.add("core", Attention{4, 4, 2}, {x});
  x = graph.add("proj", Linear{8, true, {}}, {x});
  x = graph.add("up", Linear{64, true, {}}, {x});
  x = graph.add("dropout", Dropout{0.5}, {x});
  x = graph.add("down", Linear{20, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  const std::vector<std::string> problems = cut_problems_of(graph, 3);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0],
            "3 tensor-parallel ranks cannot share the 4 heads of 'core' (every rank takes as many "
            "heads as the others). Use 1, 2, 4 tensor-parallel ranks.");
  EXPECT_EQ(problems[1],
            "dropout 'dropout' would work on some columns of a tensor (its mask is drawn for whole "
            "samples). Set the dropout to 0 or use 1 tensor-parallel rank.");
}

TEST(TensorShard, NamesKeyHeadsAndAllLayersThatHaveThem) {
  const std::vector<std::string> problems = cut_problems_of(llama_like(8, 2), 4);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("the 2 key and value heads of 'block0.attn.core' and 1 more"),
            std::string::npos)
      << problems[0];
  EXPECT_NE(problems[0].find("Use 1, 2 tensor-parallel ranks"), std::string::npos) << problems[0];
}

TEST(TensorShard, RefusesConvolutionNets) {
  for (const char* name : {"resnet18", "vgg16"}) {
    const std::vector<std::string> problems = cut_problems_of(build_model(name), 2);
    ASSERT_EQ(problems.size(), 1u) << name;
    EXPECT_NE(problems[0].find("convolutions and norms stay whole"), std::string::npos)
        << problems[0];
  }
}

TEST(TensorShard, RefusesNoRanks) { EXPECT_THROW(tensor_shard(gpt_untied(), 0, 0), UserError); }

}  // namespace
}  // namespace heteroperf
