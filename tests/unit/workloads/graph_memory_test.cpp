#include "workloads/graph_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "metrics/base/error.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

TEST(GraphMemory, WeightsGradientsAndOptimizerPerPrecision) {
  const ModelGraph graph = build_model("nano");
  const std::uint64_t n = graph.parameter_count();
  const auto estimate = [&](Precision precision, OptimizerKind optimizer) {
    return estimate_memory(graph, 1, precision, optimizer);
  };
  EXPECT_EQ(estimate(Precision::fp32, OptimizerKind::adamw).weights, Bytes(4 * n));
  EXPECT_EQ(estimate(Precision::fp32, OptimizerKind::adamw).gradients, Bytes(4 * n));
  EXPECT_EQ(estimate(Precision::fp32, OptimizerKind::adamw).optimizer, Bytes(8 * n));
  EXPECT_EQ(estimate(Precision::fp32, OptimizerKind::sgd).optimizer, Bytes(4 * n));
  EXPECT_EQ(estimate(Precision::fp64, OptimizerKind::adamw).optimizer, Bytes(16 * n));
  // Plain mixed precision: 2 + 2 + 12 bytes per parameter.
  const MemoryEstimate mixed = estimate(Precision::bf16, OptimizerKind::adamw);
  EXPECT_EQ(mixed.weights + mixed.gradients + mixed.optimizer, Bytes(16 * n));
  EXPECT_EQ(estimate(Precision::bf16, OptimizerKind::sgd).optimizer, Bytes(8 * n));
  EXPECT_EQ(mixed.total(), Bytes(16 * n) + mixed.activations);
}

/// in {3,8,8} -> conv {4,8,8} -> bn -> relu -> pool {4,4,4} -> flat {64} -> fc {5} -> loss.
ModelGraph small_net() {
  ModelGraph graph;
  NodeId x = graph.add("in", Input{InputKind::images, 3, 8, 8, 0}, {});
  x = graph.add("conv", Conv2d{4, {3, 3}, {1, 1}, {1, 1}}, {x});
  x = graph.add("bn", BatchNorm{}, {x});
  x = graph.add("relu", Relu{}, {x});
  x = graph.add("pool", MaxPool{}, {x});
  x = graph.add("flat", Flatten{}, {x});
  x = graph.add("fc", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

TEST(GraphMemory, ActivationsByHand) {
  // Kept: in 192, conv 256, relu 256 (also the pool's input), pool 64 (through flat), fc 5;
  // 64 pool indices, 1 target; 2 · 4 statistics per batch.
  const std::uint64_t tensors = 192 + 256 + 256 + 64 + 5, indices = 64 + 1;
  EXPECT_EQ(activation_bytes(small_net(), 1, Precision::fp32),
            Bytes(4 * tensors + 8 * indices + 4 * 8));
  EXPECT_EQ(activation_bytes(small_net(), 10, Precision::fp32),
            Bytes(10 * (4 * tensors + 8 * indices) + 4 * 8));
  EXPECT_EQ(activation_bytes(small_net(), 10, Precision::bf16),
            Bytes(10 * (2 * tensors + 8 * indices) + 4 * 8));
}

TEST(GraphMemory, ASharedTensorCountsOnce) {
  ModelGraph graph;
  const NodeId in = graph.add("in", Input{InputKind::tokens, 0, 0, 0, 3}, {});
  const NodeId x = graph.add("e", Embedding{7, 4}, {in});
  const NodeId a = graph.add("a", Linear{5, true, {}}, {x}),
               b = graph.add("b", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {graph.add("m", Multiply{}, {a, b})});
  // Tokens 3 indices, x 12, a and b 15 each, logits 15; 3 targets.
  EXPECT_EQ(activation_bytes(graph, 2, Precision::fp32),
            Bytes(2 * (8 * 3 + 4 * (12 + 15 + 15 + 15) + 8 * 3)));
}

// Per block of the suite's GPT: s·h of [2 norms' inputs, qkv's and mlp's inputs, core's output,
// 3 for qkv, 4 + 4 for the MLP] = 16, plus statistics; no term in s².
TEST(GraphMemory, ATransformerBlockKeepsSixteenWidths) {
  const std::uint64_t s = 128, h = 128, heads = 4;
  const auto bytes = [](std::int64_t) {
    return activation_bytes(build_model("nano"), 1, Precision::fp32);
  };
  const std::uint64_t block = 4 * (16 * s * h) + 4 * (2 * 2 * s) + 4 * heads * s;
  const std::uint64_t rest = 8 * s                      // tokens
                             + 4 * (2 * s * h + 2 * s)  // final norm's input and output, statistics
                             + 4 * 256 * s + 8 * s;     // logits, targets
  EXPECT_EQ(bytes(0), Bytes(2 * block + rest));
}

std::string memory_error(const ModelGraph& graph, std::uint64_t samples) {
  try {
    estimate_memory(graph, samples, Precision::fp32, OptimizerKind::adamw);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(GraphMemory, MoreThanSixtyFourBitsIsAnErrorThatNamesBatchAndLength) {
  ModelOptions options;
  options.length = 1073741824;
  const std::string text = memory_error(build_model("llama3-405b", options), 1099511627776);
  EXPECT_NE(text.find("1099511627776 samples"), std::string::npos) << text;
  EXPECT_NE(text.find("1073741824 tokens"), std::string::npos) << text;
}

TEST(GraphMemory, TheLastBatchThatCanBeCountedIsExact) {
  const ModelGraph graph = small_net();
  const std::uint64_t one = activation_bytes(graph, 1, Precision::fp32).value();
  const std::uint64_t per_sample = activation_bytes(graph, 2, Precision::fp32).value() - one;
  const std::uint64_t per_batch = one - per_sample;
  const std::uint64_t state = 16 * graph.parameter_count();
  const std::uint64_t most = (UINT64_MAX - per_batch - state) / per_sample;
  EXPECT_EQ(activation_bytes(graph, most, Precision::fp32), Bytes(most * per_sample + per_batch));
  EXPECT_EQ(memory_error(graph, most), "");
  EXPECT_NE(memory_error(graph, most + 1), "");
}

}  // namespace
}  // namespace heteroperf
