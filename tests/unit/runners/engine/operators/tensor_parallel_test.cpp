#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "tests/unit/runners/engine/operators/tensor_rank.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

// ---- small models with 12 heads

GptShape decoder() {
  GptShape shape;
  shape.layers = 2;
  shape.width = 48;
  shape.heads = shape.kv_heads = 12;
  shape.vocabulary = 101;
  shape.length = 10;
  shape.dropout = 0.1;
  return shape;
}
ModelGraph gpt_like() { return gpt(decoder()); }
ModelGraph mpt_like() {
  GptShape shape = decoder();
  shape.head = HeadKind::tied;
  shape.position_kind = PositionKind::alibi;
  shape.norm = NormKind::layer_norm_no_bias;
  shape.bias = false;
  return gpt(shape);
}
ModelGraph llama_like() {
  GptShape shape = decoder();
  shape.heads = 24;
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
  shape.dropout = 0.1;
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
ModelGraph smoothed_gpt() {
  const ModelGraph plain = gpt_like();
  ModelGraph graph;
  for (const Node& node : plain.nodes()) {
    Attributes attributes = node.attributes;
    if (auto* loss = std::get_if<CrossEntropy>(&attributes)) loss->label_smoothing = 0.1;
    graph.add(node.name, attributes, node.inputs, node.branch);
  }
  return graph;
}

struct ModelCase {
  const char* name;
  ModelGraph (*build)();
};
const ModelCase models[] = {{"gpt", gpt_like},   {"gpt_smoothed", smoothed_gpt},
                            {"mpt", mpt_like},   {"llama", llama_like},
                            {"bert", bert_like}, {"vit", vit_like}};

/// Nodes cut into `stages` pieces at random places.
std::vector<StageId> random_stages(std::size_t nodes, int stages, std::uint64_t seed) {
  RandomStream stream(seed);
  std::vector<std::size_t> first(static_cast<std::size_t>(stages), 0);
  for (std::size_t s = 1; s < first.size(); ++s) first[s] = 1 + stream.below(nodes - 1);
  std::sort(first.begin(), first.end());
  std::vector<StageId> stage_of(nodes);
  for (std::size_t n = 0; n < nodes; ++n) {
    stage_of[n] = StageId(std::upper_bound(first.begin(), first.end(), n) - first.begin() - 1);
  }
  return stage_of;
}

/// One model and what its whole graph gives.
class Comparison {
 public:
  Comparison(const ModelGraph& graph, at::ScalarType type, std::uint64_t seed)
      : graph_(graph),
        reference_(graph, at::kDouble, seed),
        sample_(random_sample(graph, 3, type, seed + 1)),
        targets_(random_targets(graph, 3, seed + 2)) {
    context_.seed = 5;
    context_.step = 2;
    context_.first_sample = 40;
    context_.loss_scale = 0.75;
    PassForm form;
    form.type = type;
    form.stage_of.resize(graph.nodes().size());
    const std::unique_ptr<Communicator> alone = make_null_communicator();
    whole_ =
        run_rank(tensor_shard(graph, 1, 0), reference_, form, *alone, sample_, targets_, context_);
  }

  void check(int degree, const PassForm& form, double tolerance) {
    std::vector<TensorShard> shards;
    for (int index = 0; index < degree; ++index) {
      shards.push_back(tensor_shard(graph_, degree, index));
    }
    std::vector<RankPass> passes(shards.size());
    run_on_threads(degree, {}, [&](World& world) {
      const auto rank = world.communicator->rank().index();
      passes[rank] = run_rank(shards[rank], reference_, form, *world.communicator, sample_,
                              targets_, context_);
    });
    for (const RankPass& pass : passes) {
      EXPECT_LE(relative_error(pass.loss, whole_.loss), tolerance);
      EXPECT_EQ(pass.right, whole_.right);
    }
    check_parameters(shards, passes, tolerance);
    check_outputs(shards, passes, tolerance);
  }

  const RankPass& whole() const { return whole_; }

 private:
  void check_parameters(const std::vector<TensorShard>& shards, const std::vector<RankPass>& passes,
                        double tolerance) {
    for (const auto& [key, expected] : whole_.parameters) {
      const auto n = static_cast<std::size_t>(key.first);
      const Node& node = graph_.nodes()[n];
      SCOPED_TRACE(node.name + "." + node.parameters[key.second].name);
      const at::Tensor joined = at::full_like(expected, std::nan(""));
      for (std::size_t rank = 0; rank < passes.size(); ++rank) {
        const auto found = passes[rank].parameters.find(key);
        if (found == passes[rank].parameters.end()) {
          EXPECT_GT(rank, 0u);  // the bias of a row linear
          continue;
        }
        const ParameterShard& shard = shards[rank].parameters[n][key.second];
        if (!shard.whole()) {
          paste(found->second, shard, joined);
          continue;
        }
        EXPECT_LE(relative_error(found->second, expected), tolerance);
        joined.copy_(found->second);
      }
      EXPECT_LE(relative_error(joined, expected), tolerance);
    }
  }

  void check_outputs(const std::vector<TensorShard>& shards, const std::vector<RankPass>& passes,
                     double tolerance) {
    std::size_t compared = 0;
    for (const auto& [id, expected] : whole_.outputs) {
      const auto n = static_cast<std::size_t>(id);
      if (passes[0].outputs.count(id) == 0) continue;  // inside a group
      SCOPED_TRACE(graph_.nodes()[n].name);
      ++compared;
      const at::Tensor joined = at::full_like(expected, std::nan(""));
      for (std::size_t rank = 0; rank < passes.size(); ++rank) {
        const at::Tensor& own = passes[rank].outputs.at(id);
        if (shards[rank].output_is_sharded[n]) {
          const auto last = static_cast<std::size_t>(expected.dim() - 1);
          paste(own, {last, shards[rank].columns[n]}, joined);
        } else {
          joined.copy_(own);
          EXPECT_LE(relative_error(own, expected), tolerance);
        }
      }
      EXPECT_LE(relative_error(joined, expected), tolerance);
    }
    EXPECT_GT(compared, graph_.nodes().size() / 3);
  }

  const ModelGraph& graph_;
  ReferenceModel reference_;
  at::Tensor sample_, targets_;
  PassContext context_;
  RankPass whole_;
};

class TensorRanks : public testing::TestWithParam<std::tuple<ModelCase, int>> {
 protected:
  const ModelGraph graph = std::get<0>(GetParam()).build();
  const int degree = std::get<1>(GetParam());
};

TEST_P(TensorRanks, HaveTheGradientsOfTheWholeModel) {
  Comparison comparison(graph, at::kDouble, 3);
  for (const Fusion fusion : {Fusion::on, Fusion::off}) {
    for (const Gradients gradients : {Gradients::together, Gradients::apart}) {
      SCOPED_TRACE(fmt::format("{} {}", fusion == Fusion::on ? "fused" : "single",
                               gradients == Gradients::together ? "together" : "apart"));
      PassForm form{at::kDouble, fusion, gradients, std::vector<StageId>(graph.nodes().size())};
      comparison.check(degree, form, 1e-12);
    }
  }
}

TEST_P(TensorRanks, HaveThemWhereverStagesAreCut) {
  Comparison comparison(graph, at::kDouble, 4);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    PassForm form;
    form.stage_of = random_stages(graph.nodes().size(), 3 + static_cast<int>(seed), seed);
    form.gradients = seed % 2 == 0 ? Gradients::together : Gradients::apart;
    comparison.check(degree, form, 1e-12);
  }
}

TEST_P(TensorRanks, HaveThemInFloat32) {
  Comparison comparison(graph, at::kFloat, 5);
  PassForm form;
  form.type = at::kFloat;
  form.stage_of.resize(graph.nodes().size());
  comparison.check(degree, form, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Degrees, TensorRanks,
                         testing::Combine(testing::ValuesIn(models), testing::Values(1, 2, 3, 4)),
                         [](const auto& chosen) {
                           return fmt::format("{}_{}", std::get<0>(chosen.param).name,
                                              std::get<1>(chosen.param));
                         });

TEST(TensorRanksInBf16, StayNearTheWholeModel) {
  const ModelGraph graph = gpt_like();
  const ReferenceModel reference(graph, at::kDouble, 6);
  const at::Tensor sample = random_sample(graph, 3, at::kBFloat16, 7);
  const at::Tensor targets = random_targets(graph, 3, 8);
  PassForm form;
  form.stage_of.resize(graph.nodes().size());
  const std::unique_ptr<Communicator> alone = make_null_communicator();
  const RankPass exact =
      run_rank(tensor_shard(graph, 1, 0), reference, form, *alone, sample, targets, {});
  form.type = at::kBFloat16;
  std::vector<RankPass> passes(2);
  run_on_threads(2, {}, [&](World& world) {
    const int rank = world.communicator->rank().value();
    passes[static_cast<std::size_t>(rank)] = run_rank(tensor_shard(graph, 2, rank), reference, form,
                                                      *world.communicator, sample, targets, {});
  });
  const ParameterKey norm{graph.find("block0.attn_norm").value(), 0};
  for (const RankPass& pass : passes) {
    EXPECT_LE(relative_error(pass.loss, exact.loss), 5e-3);
    EXPECT_LE(relative_error(pass.parameters.at(norm), exact.parameters.at(norm)), 5e-2);
  }
  EXPECT_TRUE(passes[0].parameters.at(norm).equal(passes[1].parameters.at(norm)));
}

TEST(WholeModelOnOneTensorRank, HasTheGradientsOfAutograd) {
  const ModelGraph graph = llama_like();
  ReferenceModel reference(graph, at::kDouble, 9);
  const at::Tensor sample = random_sample(graph, 2, at::kDouble, 10);
  const at::Tensor targets = random_targets(graph, 2, 11);
  PassForm form;
  form.stage_of = random_stages(graph.nodes().size(), 4, 12);
  const std::unique_ptr<Communicator> alone = make_null_communicator();
  const RankPass ours =
      run_rank(tensor_shard(graph, 1, 0), reference, form, *alone, sample, targets, {});
  reference.forward(sample, targets, {}).backward();
  for (const auto& [key, gradient] : ours.parameters) {
    EXPECT_LE(relative_error(gradient, reference.gradient(NodeId(key.first), key.second)), 1e-10);
  }
}

// ---- groups of one stage

TEST(StageGroups, HaveTheNodesOfTheirStageAlone) {
  const ModelGraph graph = llama_like();
  const std::size_t count = graph.nodes().size();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<StageId> stage_of = random_stages(count, 5, seed);
    std::vector<int> taken(count);
    for (StageId stage; stage < 5; ++stage) {
      GroupingRules rules;
      rules.stage_of = &stage_of;
      rules.stage = stage;
      for (const OperatorGroup& group :
           make_operator_groups(graph, at::kFloat, Fusion::on, rules)) {
        for (const NodeId node : group.nodes) {
          EXPECT_EQ(stage_of[node.index()], stage);
          ++taken[node.index()];
        }
      }
    }
    const auto input = graph.input().index();
    for (std::size_t n = 0; n < count; ++n) EXPECT_EQ(taken[n], n == input ? 0 : 1);
    GroupingRules all;
    all.stage_of = &stage_of;
    for (const OperatorGroup& group : make_operator_groups(graph, at::kFloat, Fusion::on, all)) {
      for (const NodeId node : group.nodes) {
        EXPECT_EQ(stage_of[node.index()], stage_of[group.nodes[0].index()]);
      }
    }
  }
}

TEST(StageGroups, EndWhereASumIsDue) {
  const ModelGraph graph = gpt_like();
  const auto fused = [](const std::vector<OperatorGroup>& groups) {
    return static_cast<int>(std::count_if(
        groups.begin(), groups.end(), [](const auto& group) { return group.nodes.size() > 1; }));
  };
  const TensorShard shard = tensor_shard(graph, 2, 1);
  const std::unique_ptr<Communicator> alone = make_null_communicator();
  GroupingRules rules;
  rules.shard = &shard;
  rules.groups.tensor = alone.get();
  const auto groups = make_operator_groups(shard.graph, at::kFloat, Fusion::on, rules);
  EXPECT_EQ(fused(groups), 2);  // linear + gelu of either block
  EXPECT_EQ(fused(make_operator_groups(graph, at::kFloat, Fusion::on)), 3);  // and the positions
  for (const OperatorGroup& group : groups) {
    for (std::size_t i = 0; i + 1 < group.nodes.size(); ++i) {
      EXPECT_FALSE(shard.output_is_partial[static_cast<std::size_t>(group.nodes[i].value())]);
    }
  }
}

// ---- the loss over a cut vocabulary

struct LossResult {
  at::Tensor loss, gradient;
};
LossResult run_loss(Operator& op, const at::Tensor& logits, const at::Tensor& targets) {
  PassContext context;
  context.loss_scale = 0.5;
  Tensors saved;
  CheckedSink sink({NodeId(0), NodeId(1)}, {true, false}, Offer::nothing);
  LossResult result;
  result.loss = op.forward({logits, targets}, {}, saved, context);
  op.input_gradient(at::Tensor(), {}, saved, context, sink);
  result.gradient = sink.gradient(0);
  return result;
}

TEST(VocabularyCrossEntropy, IsTheWholeOne) {
  RandomStream stream(1);
  for (int draw = 0; draw < 30; ++draw) {
    const int ranks = 1 + static_cast<int>(stream.below(5));
    const auto classes = static_cast<std::int64_t>(ranks + static_cast<int>(stream.below(60)));
    const double spread = draw % 3 == 0 ? 3000.0 : 5.0;
    const CrossEntropy attributes{draw % 2 == 0 ? 0.0 : 0.3};
    const auto seed = static_cast<std::uint64_t>(draw);
    const at::Tensor logits = random_tensor({2, 7, classes}, at::kDouble, seed) * spread;
    const at::Tensor targets = random_indices({2, 7}, classes, seed + 100);
    const ModelGraph graph;
    const Node node;
    const OperatorPtr loss = make(attributes, OperatorPlace{graph, node, at::kDouble});
    const LossResult whole = run_loss(*loss, logits, targets);
    run_on_threads(ranks, {}, [&](World& world) {
      const std::int64_t rank = world.communicator->rank().value();
      const std::int64_t first = classes * rank / ranks, end = classes * (rank + 1) / ranks;
      const at::Tensor own = logits.narrow(2, first, end - first).contiguous();
      const Overwrite overwrite = draw % 2 == 0 ? Overwrite::forbidden : Overwrite::allowed;
      const OperatorPtr op = make_vocabulary_cross_entropy(attributes, {first, classes},
                                                           *world.communicator, overwrite);
      const LossResult part = run_loss(*op, own, targets);
      EXPECT_LE(relative_error(part.loss, whole.loss), 1e-12);
      const double difference =
          (part.gradient - whole.gradient.narrow(2, first, end - first)).abs().max().item<double>();
      EXPECT_LE(difference, 1e-12 * whole.gradient.abs().max().item<double>());
      EXPECT_EQ(part.gradient.data_ptr() == own.data_ptr(), overwrite == Overwrite::allowed);
    });
  }
}

TEST(VocabularyCrossEntropy, RefusesTargetsBeyondTheWholeVocabulary) {
  const std::unique_ptr<Communicator> alone = make_null_communicator();
  const OperatorPtr op = make_vocabulary_cross_entropy({}, {4, 20}, *alone);
  Tensors saved;
  const at::Tensor logits = random_tensor({3, 6}, at::kDouble, 1);
  const auto target = [](std::int64_t value) { return at::full({3}, value, at::kLong); };
  EXPECT_NO_THROW(op->forward({logits, target(19)}, {}, saved, {}));
  EXPECT_THROW(op->forward({logits, target(20)}, {}, saved, {}), UserError);
  EXPECT_THROW(op->forward({logits, target(-1)}, {}, saved, {}), UserError);
  PassContext some;
  some.targets = 2;
  EXPECT_NO_THROW(op->forward({logits, target(-1)}, {}, saved, some));
}

TEST(VocabularyEmbedding, GivesZerosForTokensOfOtherRanks) {
  const OperatorPtr op = make_vocabulary_embedding({3, 4}, {2, 7});
  const at::Tensor table = random_tensor({3, 4}, at::kDouble, 1);
  const at::Tensor tokens = at::tensor({0, 2, 4, 5, 2, 6}, at::kLong).view({2, 3});
  Tensors saved;
  const at::Tensor y = op->forward({tokens}, {table}, saved, {}).view({6, 4});
  for (const std::int64_t row : {0, 3, 5}) EXPECT_TRUE(y[row].eq(0).all().item<bool>()) << row;
  for (const std::int64_t row : {1, 4}) EXPECT_TRUE(y[row].equal(table[0])) << row;
  EXPECT_TRUE(y[2].equal(table[2]));
  const at::Tensor dy = random_tensor({2, 3, 4}, at::kDouble, 2);
  Tensors gradients{at::full({3, 4}, -9.0, at::kDouble)};
  op->weight_gradient(dy, saved, {}, gradients);
  EXPECT_TRUE(gradients[0][0].equal(dy[0][1] + dy[1][1]));
  EXPECT_TRUE(gradients[0][1].eq(0).all().item<bool>());
  EXPECT_TRUE(gradients[0][2].equal(dy[0][2]));
  EXPECT_THROW(op->forward({at::full({1, 1}, 7, at::kLong)}, {table}, saved, {}), UserError);
}

// ---- right predictions

TEST(RightPredictions, TakeTheLowestOfEqualClasses) {
  RandomStream stream(2);
  for (int draw = 0; draw < 20; ++draw) {
    const int ranks = 1 + static_cast<int>(stream.below(4));
    const auto classes = static_cast<std::int64_t>(ranks + static_cast<int>(stream.below(9)));
    // Few values: most rows have ties, within a rank and between ranks.
    const at::Tensor logits =
        random_indices({3, 20, classes}, 3, static_cast<std::uint64_t>(draw)).to(at::kFloat);
    const at::Tensor targets = random_indices({3, 20}, std::min<std::int64_t>(classes, 3),
                                              static_cast<std::uint64_t>(draw + 50));
    std::uint64_t expected = 0;
    for (std::int64_t row = 0; row < 60; ++row) {
      const at::Tensor values = logits.view({60, classes})[row];
      std::int64_t best = 0;
      for (std::int64_t c = 1; c < classes; ++c) {
        if (values[c].item<float>() > values[best].item<float>()) best = c;
      }
      if (best == targets.view({60})[row].item<std::int64_t>()) ++expected;
    }
    EXPECT_EQ(count_right(logits, targets), expected);
    run_on_threads(ranks, {}, [&](World& world) {
      const std::int64_t rank = world.communicator->rank().value();
      const std::int64_t first = classes * rank / ranks, end = classes * (rank + 1) / ranks;
      EXPECT_EQ(
          count_right(logits.narrow(2, first, end - first), targets, first, *world.communicator),
          expected);
    });
  }
}

}  // namespace
}  // namespace heteroperf
