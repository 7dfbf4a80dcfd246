#include "runners/engine/operators/active_device.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/engine/operators/product.hpp"
#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

RankDevice chip_with(EmulatedChip chip) {
  chip.name = "chip";
  chip.precisions = {"fp32", "bf16", "fp64"};
  return {.name = "emulated:chip", .chip = chip};
}

ModelGradients train(const ModelGraph& graph, at::ScalarType type, ActiveDevice& device) {
  const ReferenceModel reference(graph, type, 3);
  const DeviceScope scope(device);
  return run_model(graph, reference, type, Fusion::on, random_sample(graph, 2, type, 4),
                   random_targets(graph, 2, 5));
}

/// The largest relative distance of the loss and the gradients of two devices.
double distance(const ModelGraph& graph, at::ScalarType type, const RankDevice& one,
                const RankDevice& other) {
  ActiveDevice first(one), second(other, FallbackRules::parse("allow"));
  const ModelGradients a = train(graph, type, first), b = train(graph, type, second);
  double largest = relative_error(a.loss, b.loss);
  for (const auto& [key, gradient] : a.parameters) {
    largest = std::max(largest, relative_error(gradient, b.parameters.at(key)));
  }
  return largest;
}

std::vector<ModelGraph> graphs() {
  ModelOptions images, text;
  images.height = images.width = 32;
  images.classes = 10;
  text.length = 24;
  text.classes = 50;
  return {build_model("resnet18", images), build_model("nano", text)};
}

TEST(ActiveDevice, NamesEveryKernel) {
  EXPECT_STREQ(kernel_name(&KernelTable::activation), "activation");
  EXPECT_STREQ(kernel_name(&KernelTable::layer_norm_backward), "layer_norm_backward");
  EXPECT_STREQ(kernel_name(&KernelTable::square_sums), "square_sums");
}

TEST(ActiveDevice, TrainsFromItsFirstKernelOn) {
  for (const ModelGraph& graph : graphs()) {
    // The last batch norms are over two numbers each, whose difference magnifies what rounding
    // makes of them.
    const double limit = graph.name == "resnet18" ? 1e-8 : 1e-10;
    ActiveDevice none(chip_with({.lacks = {"*_*", "a*", "m*", "p*", "d*", "s*", "r*", "c*"}}),
                      FallbackRules::parse("allow"));
    ActiveDevice host{RankDevice()};
    const ModelGradients a = train(graph, at::kDouble, none), b = train(graph, at::kDouble, host);
    EXPECT_LE(relative_error(a.loss, b.loss), 1e-12) << graph.name;
    for (const auto& [key, gradient] : a.parameters) {
      EXPECT_LE(relative_error(gradient, b.parameters.at(key)), limit) << graph.name;
    }
    EXPECT_TRUE(host.substitutions().empty());
    ASSERT_FALSE(none.substitutions().empty());
    EXPECT_TRUE(none.substitutions().contains("product"));
    for (const auto& [name, count] : none.substitutions()) {
      EXPECT_GT(count.calls, 0u) << name;
      EXPECT_GT(count.bytes, 0u) << name;
      EXPECT_GT(count.seconds, 0) << name;
    }
  }
}

// A language model's gradients are not chaotic; those of batch norms over few pixels are.
TEST(ActiveDevice, UnlikeNumericsAreAsFarApartAsTheirRounding) {
  const ModelGraph graph = graphs().back();
  const RankDevice host, exact = read_device("cpu:exact");
  const double by_order = distance(graph, at::kFloat, chip_with({.sum_order = 7}), host);
  EXPECT_GT(by_order, 0);
  EXPECT_LT(by_order, 1e-4);
  EXPECT_LT(distance(graph, at::kFloat, exact, host), 1e-4);
  EXPECT_EQ(distance(graph, at::kFloat, chip_with({.sum_order = 7}), chip_with({.sum_order = 7})),
            0);
  const double tf32 =
      distance(graph, at::kFloat, chip_with({.products = OperandFormat::tf32}), exact);
  const double bf16 =
      distance(graph, at::kFloat, chip_with({.products = OperandFormat::bf16}), exact);
  EXPECT_GT(tf32, 1e-4);
  EXPECT_GT(bf16, tf32);
  EXPECT_LT(bf16, 0.1);
}

/// Output and gradient of an attention over random rows.
Tensors attend(const ModelGraph& graph, at::ScalarType type, const RankDevice& chosen) {
  const Node& node = graph.nodes().back();
  const auto op =
      make_operator(graph, NodeId(static_cast<std::int32_t>(graph.nodes().size()) - 1), type);
  ActiveDevice device(chosen);
  const DeviceScope scope(device);
  const auto rows = [&](const Shape& shape, std::uint64_t seed) {
    const at::Tensor drawn = at::empty({2, shape[0], shape[1]}, at::kDouble);
    auto* const values = drawn.data_ptr<double>();
    for (std::int64_t i = 0; i < drawn.numel(); ++i) {
      values[i] = 4 * to_unit(random_bits(seed, i)) - 2;
    }
    return drawn.to(type);
  };
  CheckedSink sink(node.inputs, {true}, Offer::nothing);
  Tensors saved, none;
  const PassContext context;
  const at::Tensor y =
      op->forward({rows(graph.node(node.inputs[0]).output, 1)}, {}, saved, context);
  op->backward(rows(node.output, 2), {}, saved, context, sink, none);
  return {y, sink.gradient(0)};
}

// With more keys than LibTorch takes at once, some of what it takes may be hidden from a query.
TEST(ActiveDevice, AttentionAddsInTheOrderOfTheDevice) {
  Input tokens;
  tokens.kind = InputKind::tokens;
  for (const std::int64_t length : {7, 1100}) {
    tokens.length = length;
    for (const Attention& kind :
         {Attention{2, 2, 12, false, false}, Attention{2, 2, 12, true, false},
          Attention{4, 2, 8, true, true}, Attention{4, 1, 8, false, true}}) {
      ModelGraph graph;
      const NodeId sample = graph.add("sample", tokens, {});
      const std::int64_t width = (kind.heads + 2 * kind.kv_heads) * kind.head_dim;
      graph.add("attention", kind, {graph.add("table", Embedding{2, width}, {sample})});
      const Tensors truth = attend(graph, at::kDouble, read_device("cpu:exact"));
      for (const auto& [type, rounding] :
           {std::pair(at::kFloat, 1e-5), std::pair(at::kDouble, 1e-13)}) {
        const Tensors plain = attend(graph, type, chip_with({}));
        const Tensors moved = attend(graph, type, chip_with({.sum_order = 5}));
        const Tensors again = attend(graph, type, chip_with({.sum_order = 6}));
        for (std::size_t i = 0; i < truth.size(); ++i) {
          EXPECT_LT(relative_error(moved[i], truth[i]), rounding) << length << " " << i;
          EXPECT_GT(relative_error(moved[i], plain[i]), 0) << length << " " << i;
          EXPECT_GT(relative_error(moved[i], again[i]), 0) << length << " " << i;
        }
      }
    }
  }
}

TEST(ActiveDevice, OperandsAreRoundedToNearestEven) {
  const auto rounded = [](OperandFormat format, float value) {
    ActiveDevice device(chip_with({.products = format}));
    const DeviceScope scope(device);
    at::Tensor one = at::empty({1}, at::kFloat);
    one.data_ptr<float>()[0] = value;
    return as_operand(one).item<float>();
  };
  const float step = std::ldexp(1.0f, -10);
  EXPECT_EQ(rounded(OperandFormat::tf32, 1 + step), 1 + step);
  EXPECT_EQ(rounded(OperandFormat::tf32, 1 + step / 2), 1);
  EXPECT_EQ(rounded(OperandFormat::tf32, 1 + 3 * step / 2), 1 + 2 * step);
  EXPECT_EQ(rounded(OperandFormat::tf32, -1 - 3 * step / 2), -1 - 2 * step);
  EXPECT_EQ(rounded(OperandFormat::fp16, 65536), std::numeric_limits<float>::infinity());
  EXPECT_EQ(rounded(OperandFormat::tf32, std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(rounded(OperandFormat::tf32, std::nanf(""))));
  EXPECT_EQ(rounded(OperandFormat::bf16, 1 + std::ldexp(1.0f, -8)), 1);
  EXPECT_EQ(rounded(OperandFormat::stored, 1 + std::ldexp(1.0f, -23)), 1 + std::ldexp(1.0f, -23));
}

TEST(ActiveDevice, WhatIsDeniedIsRefused) {
  const ModelGraph graph = graphs().back();
  ActiveDevice device(chip_with({.lacks = {"layer_norm"}}), FallbackRules::parse("deny"));
  EXPECT_THROW(train(graph, at::kFloat, device), UserError);
}

TEST(ActiveDevice, AChipThatDisappearsFailsTheRun) {
  ActiveDevice device(chip_with({.lost_after_calls = 20}));
  try {
    train(graphs().back(), at::kFloat, device);
    FAIL() << "it answered";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::run_failed);
  }
}

TEST(ActiveDevice, UnknownOperatorsAreNamed) {
  try {
    ActiveDevice device(chip_with({.lacks = {"layer_nrom", "soft", "product"}}));
    FAIL() << "they were taken";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 2u);
  }
}

TEST(ActiveDevice, EveryRankHasItsOwn) {
  use_device(read_device("cpu:exact"));
  EXPECT_STREQ(active_device().instruction_set(), "exact");
  std::thread([] { EXPECT_STRNE(active_device().instruction_set(), "exact"); }).join();
  use_device(RankDevice());
}

}  // namespace
}  // namespace heteroperf
