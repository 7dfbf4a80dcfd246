#include "runners/engine/parameters/parameter_store.hpp"

#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous().to(at::kDouble);
  const double* x = flat.const_data_ptr<double>();
  Moments result;
  const auto n = static_cast<double>(flat.numel());
  for (std::int64_t i = 0; i < flat.numel(); ++i) result.mean += x[i] / n;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    result.deviation += (x[i] - result.mean) * (x[i] - result.mean) / n;
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}

Moments moments_of(const ModelGraph& graph, const ParameterStore& store, const char* node) {
  return moments(store.parameter(graph.find(node), 0));
}

TEST(ParameterStore, PutsMatricesFirstOnBoundariesOfACacheLine) {
  const ModelGraph graph = test::tiny_gpt();
  const ParameterStore store(graph, Precision::fp32, 1);
  const auto begin = reinterpret_cast<std::uintptr_t>(store.master().data_ptr());
  std::uint64_t elements = 0;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const NodeId id(static_cast<std::int32_t>(n));
    for (std::size_t i = 0; i < graph.node(id).parameters.size(); ++i) {
      const at::Tensor& parameter = store.parameter(id, i);
      const auto address = reinterpret_cast<std::uintptr_t>(parameter.data_ptr());
      const bool matrix = graph.node(id).parameters[i].shape.size() > 1;
      EXPECT_EQ((address - begin) % 64, 0U);
      EXPECT_EQ(matrix,
                (address - begin) / 4 < static_cast<std::uint64_t>(store.parts()[0].matrices_end));
      EXPECT_EQ(parameter.sizes().vec(), graph.node(id).parameters[i].shape);
      EXPECT_EQ(store.gradient(id, i).sizes(), parameter.sizes());
      elements += static_cast<std::uint64_t>(parameter.numel());
    }
  }
  EXPECT_EQ(elements, graph.parameter_count());
}

TEST(ParameterStore, TheSameSeedGivesTheSameBits) {
  const ModelGraph graph = test::tiny_cnn();
  const ParameterStore a(graph, Precision::fp32, 5), b(graph, Precision::fp32, 5),
      c(graph, Precision::fp32, 6);
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_NE(a.fingerprint(), c.fingerprint());
}

TEST(ParameterStore, APrecisionRoundsTheSameValues) {
  const ModelGraph graph = test::tiny_cnn();
  const ParameterStore wide(graph, Precision::fp64, 5), narrow(graph, Precision::fp32, 5),
      half(graph, Precision::bf16, 5);
  const NodeId node = graph.find("first.conv");
  const at::Tensor exact = wide.parameter(node, 0);
  EXPECT_TRUE(narrow.parameter(node, 0).equal(exact.to(at::kFloat)));
  EXPECT_TRUE(half.parameter(node, 0).equal(exact.to(at::kFloat).to(at::kBFloat16)));
}

TEST(ParameterStore, MovesEveryValueByItsShare) {
  const ModelGraph graph = test::tiny_gpt();
  for (const Precision precision : {Precision::fp32, Precision::fp64, Precision::bf16}) {
    const ParameterStore before(graph, precision, 1);
    ParameterStore moved(graph, precision, 1);
    moved.move(0.25);
    const at::Tensor ratio = moved.master().div(before.master()).to(at::kDouble);
    std::int64_t up = 0, down = 0;
    for (std::int64_t i = 0; i < ratio.numel(); ++i) {
      const double found = ratio.const_data_ptr<double>()[i];
      if (std::isnan(found)) continue;  // of 0
      EXPECT_NEAR(std::fabs(found - 1), 0.25, 1e-6);
      found > 1 ? ++up : ++down;
    }
    EXPECT_GT(up, 0);
    EXPECT_GT(down, 0);
    const NodeId head = graph.find("head");
    EXPECT_TRUE(moved.parameter(head, 0).ne(before.parameter(head, 0)).all().item<bool>());
  }
}

TEST(ParameterStore, Bf16AddsItsGradientsInFloat32) {
  const ModelGraph graph = test::tiny_gpt();
  ParameterStore store(graph, Precision::bf16, 1);
  const NodeId head = graph.find("head");
  at::Tensor gradient = store.gradient(head, 0);
  ASSERT_EQ(gradient.scalar_type(), at::kBFloat16);
  gradient.fill_(256.0);
  store.collect_gradient(store.ordinal(head, 0), Accumulation::overwrite);
  gradient.fill_(1.0);
  store.collect_gradient(store.ordinal(head, 0), Accumulation::add);
  EXPECT_EQ(store.reduced_gradient().max().item().toDouble(), 257.0);
}

at::Tensor rows_of(const at::Tensor& full, const ParameterShard& shard) {
  std::vector<at::Tensor> pieces;
  for (const auto& interval : shard.intervals) {
    pieces.push_back(
        full.narrow(static_cast<std::int64_t>(shard.dim), interval.first, interval.count));
  }
  return at::cat(pieces, static_cast<std::int64_t>(shard.dim));
}

HeldParameter held(NodeId node, std::size_t index, Shape shape, ParameterShard shard,
                   std::size_t part = 0) {
  return {node, index, std::move(shape), std::move(shard), part};
}

TEST(ParameterStore, AShardHasTheFullParametersValuesAtItsPlaces) {
  const ModelGraph graph = test::tiny_gpt();
  const ParameterStore whole(graph, Precision::fp32, 3);
  const NodeId qkv = graph.find("block0.qkv"), down = graph.find("block1.down");
  const ParameterShard heads{0, {{8, 8}, {40, 8}, {72, 7}}}, columns{1, {{5, 3}, {64, 21}}};
  const ParameterStore store(
      graph,
      {held(qkv, 0, {23, 32}, heads), held(qkv, 1, {23}, heads), held(down, 0, {32, 24}, columns)},
      Precision::fp32, 3);
  EXPECT_TRUE(store.parameter(qkv, 0).equal(rows_of(whole.parameter(qkv, 0), heads)));
  EXPECT_TRUE(store.parameter(qkv, 1).equal(rows_of(whole.parameter(qkv, 1), heads)));
  EXPECT_TRUE(store.parameter(down, 0).equal(rows_of(whole.parameter(down, 0), columns)));
  EXPECT_EQ(store.count(), 3U);
  EXPECT_THROW(store.ordinal(down, 1), Error);
}

TEST(ParameterStore, EveryPartHasItsMatricesFirst) {
  const ModelGraph graph = test::tiny_cnn();
  const NodeId conv = graph.find("down.conv"), norm = graph.find("down.norm"),
               head = graph.find("head");
  const auto whole = [&](NodeId node, std::size_t index, std::size_t part) {
    return held(node, index, graph.node(node).parameters[index].shape, {}, part);
  };
  const ParameterStore store(
      graph, {whole(head, 1, 0), whole(head, 0, 0), whole(norm, 0, 2), whole(conv, 0, 2)},
      Precision::fp64, 3);
  ASSERT_EQ(store.parts().size(), 3U);
  const auto [begin, matrices_end, end] = store.parts()[2];
  EXPECT_EQ(store.parts()[0].end, begin);
  EXPECT_EQ(store.parts()[1].end, store.parts()[1].begin);
  EXPECT_EQ(end, store.elements());
  EXPECT_EQ(store.place(store.ordinal(conv, 0)).offset, begin);
  EXPECT_EQ(store.place(store.ordinal(norm, 0)).offset, matrices_end);
  EXPECT_EQ(store.ordinal(head, 0), 0U);
  EXPECT_EQ(store.ordinal(head, 1), 1U);
  EXPECT_TRUE(
      store.parameter(conv, 0).equal(ParameterStore(graph, Precision::fp64, 3).parameter(conv, 0)));
  EXPECT_TRUE(store.parameter(conv, 0).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(ParameterStore, Bf16CollectsByParameterAndPublishesPartByPart) {
  const ModelGraph graph = test::tiny_gpt();
  const NodeId up = graph.find("block0.up"), head = graph.find("head");
  const auto whole = [&](NodeId node, std::size_t part) {
    return held(node, 0, graph.node(node).parameters[0].shape, {}, part);
  };
  ParameterStore store(graph, {whole(up, 0), whole(head, 1)}, Precision::bf16, 1);
  at::Tensor(store.gradient(up, 0)).fill_(2.0);
  at::Tensor(store.gradient(head, 0)).fill_(3.0);
  store.collect_gradient(store.ordinal(head, 0), Accumulation::overwrite);
  EXPECT_EQ(store.reduced_gradient()[0].item().toDouble(), 0.0);
  EXPECT_EQ(store.reduced_gradient()[store.parts()[1].begin].item().toDouble(), 3.0);
  at::Tensor(store.master()).fill_(0.5);
  store.publish(store.parts()[1].begin, store.parts()[1].end);
  EXPECT_EQ(store.parameter(head, 0).min().item().toDouble(), 0.5);
  EXPECT_NE(store.parameter(up, 0).min().item().toDouble(), 0.5);
}

TEST(InitialValues, FollowTheRuleOfTheirKind) {
  const ModelGraph gpt = test::tiny_gpt(), cnn = test::tiny_cnn(), vit = test::tiny_vit();
  const ParameterStore gpt_store(gpt, Precision::fp64, 1), cnn_store(cnn, Precision::fp64, 1),
      vit_store(vit, Precision::fp64, 1);
  const auto close = [](Moments m, double deviation) {
    EXPECT_NEAR(m.deviation, deviation, 0.1 * deviation);
    EXPECT_NEAR(m.mean, 0, 0.2 * deviation);
  };
  close(moments_of(gpt, gpt_store, "block0.qkv"), 0.02);
  close(moments_of(gpt, gpt_store, "embedding"), 0.02);
  close(moments_of(gpt, gpt_store, "block1.out"), 0.02 / 2);
  close(moments_of(gpt, gpt_store, "block1.down"), 0.02 / 2);
  close(moments_of(cnn, cnn_store, "down.conv"), std::sqrt(2.0 / (16 * 9)));
  close(moments_of(vit, vit_store, "patches"), std::sqrt(1.0 / (3 * 16)));
  EXPECT_EQ(moments_of(gpt, gpt_store, "norm").mean, 1.0);
  EXPECT_EQ(moments(gpt_store.parameter(gpt.find("norm"), 1)).deviation, 0.0);
  EXPECT_EQ(moments(gpt_store.parameter(gpt.find("norm"), 1)).mean, 0.0);
}

TEST(InitialValues, AreNormal) {
  ModelGraph graph;
  NodeId x = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, 4}, {});
  x = graph.add("table", Embedding{1000, 200}, {x});
  x = graph.add("head", Linear{1000, false, "table"}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  const ParameterStore store(graph, Precision::fp64, 1);
  const at::Tensor z = store.parameter(graph.find("table"), 0).div(0.02);
  const double fourth = z.pow(4).mean().item().toDouble();
  EXPECT_NEAR(fourth, 3.0, 0.1);
  const double beyond_two = z.abs().gt(2.0).to(at::kDouble).mean().item().toDouble();
  EXPECT_NEAR(beyond_two, 0.0455, 0.002);
}

}  // namespace
}  // namespace heteroperf
