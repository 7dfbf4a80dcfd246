#include "runners/engine/probe/operation_observer.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <thread>

#include "runners/comm/communicator.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

template <class Body>
ObservedOperations observe(const Body& body) {
  const OperationObserver observer;
  body();
  return observer.observed();
}

TEST(OperationObserver, CountsTwoPerMultiplyAdd) {
  const at::Tensor a = at::ones({3, 5}), b = at::ones({5, 7}), c = at::ones({7});
  const ObservedOperations seen = observe([&] {
    at::mm(a, b);
    at::addmm(c, a, b);
    at::mul(a, a);
  });
  EXPECT_EQ(seen.executed, Ops(2 * 2 * 3 * 5 * 7));
  EXPECT_EQ(seen.calls, 2U);
  EXPECT_TRUE(seen.unknown.empty());
}

TEST(OperationObserver, CountsAConvolutionOnceThroughItsLevels) {
  const at::Tensor x = at::ones({2, 4, 9, 9}), w = at::ones({6, 2, 3, 3});
  const ObservedOperations seen = observe([&] {
    at::conv2d(x, w, {}, at::IntArrayRef{2, 2}, at::IntArrayRef{1, 1}, at::IntArrayRef{1, 1}, 2);
  });
  EXPECT_EQ(seen.executed, Ops(2ULL * 2 * 6 * 5 * 5 * 2 * 9));
  EXPECT_EQ(seen.calls, 1U);
}

TEST(OperationObserver, FollowsTheOutputMaskOfAConvolutionBackward) {
  const at::Tensor x = at::ones({2, 4, 9, 9}), w = at::ones({6, 4, 3, 3}),
                   dy = at::ones({2, 6, 7, 7});
  const Ops one(2ULL * 2 * 6 * 7 * 7 * 4 * 9);
  for (const bool input : {false, true}) {
    for (const bool weight : {false, true}) {
      const ObservedOperations seen = observe([&] {
        at::convolution_backward(dy, x, w, at::OptionalIntArrayRef(), {1, 1}, {0, 0}, {1, 1}, false,
                                 {0, 0}, 1, {input, weight, false});
      });
      EXPECT_EQ(seen.executed, one * ((input ? 1U : 0U) + (weight ? 1U : 0U)));
    }
  }
}

TEST(OperationObserver, HalvesCausalAttention) {
  const at::Tensor q = at::ones({2, 4, 16, 8});
  for (const bool causal : {false, true}) {
    const ObservedOperations seen =
        observe([&] { at::scaled_dot_product_attention(q, q, q, {}, 0.0, causal); });
    EXPECT_EQ(seen.executed, Ops((causal ? 1ULL : 2ULL) * 2 * 2 * 4 * 16 * 16 * 8));
  }
}

TEST(OperationObserver, SeesThroughOperatorsThatCallCountedOnes) {
  const at::Tensor x = at::ones({3, 5}), w = at::ones({7, 5}), b = at::ones({7});
  const ObservedOperations seen = observe([&] { at::linear(x, w, b); });
  EXPECT_EQ(seen.executed, Ops(2 * 3 * 5 * 7));
  EXPECT_TRUE(seen.unknown.empty());
}

TEST(OperationObserver, NamesTensorOperationsOutsideTheList) {
  const at::Tensor x = at::ones({5});
  const ObservedOperations seen = observe([&] { at::dot(x, x); });
  EXPECT_EQ(seen.unknown, std::vector<std::string>{"aten::dot"});
  EXPECT_EQ(seen.executed, Ops(0));
}

TEST(OperationObserver, SeesOperatorsInInferenceMode) {
  const at::Tensor a = at::ones({3, 5}), b = at::ones({5, 7});
  const c10::InferenceMode no_tape;
  EXPECT_EQ(observe([&] { at::mm(a, b); }).executed, Ops(2 * 3 * 5 * 7));
}

TEST(OperationObserver, SeesItsOwnThreadOnlyAndNothingAfterItsEnd) {
  const at::Tensor a = at::ones({3, 5}), b = at::ones({5, 7});
  const ObservedOperations seen = observe([&] { std::thread([&] { at::mm(a, b); }).join(); });
  EXPECT_EQ(seen.calls, 0U);
  at::mm(a, b);
  EXPECT_EQ(observe([&] { at::mm(a, b); }).calls, 1U);
}

TEST(OperationRules, SuspectNamesOfProductsOnly) {
  for (const char* name : {"aten::_scaled_mm", "aten::matmul", "aten::addmv", "aten::conv3d",
                           "aten::einsum", "aten::vdot", "heteroperf::anything"}) {
    EXPECT_TRUE(looks_like_tensor_operation(name)) << name;
  }
  for (const char* name : {"aten::lgamma", "aten::cummax", "aten::upsample_bilinear2d", "aten::add",
                           "aten::softmax", "aten::_convert_indices_from_coo_to_csr"}) {
    EXPECT_FALSE(looks_like_tensor_operation(name)) << name;
  }
}

struct ObservedModel {
  const char* name;
  ModelGraph (*build)();
};

class ExecutedOperations : public ::testing::TestWithParam<ObservedModel> {};

TEST_P(ExecutedOperations, EqualTheCountOfTheGraph) {
  const ModelGraph graph = GetParam().build();
  const auto alone = make_null_communicator();
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const std::int64_t micro_batch : {1, 3}) {
      const auto session = start_training(
          test::replicated(test::small_training(graph, precision), 1, micro_batch, 2), *alone);
      ObservedOperations seen;
      const StepReport report = session->step(&seen);
      EXPECT_EQ(seen.executed.to_string(), strict_train_ops(graph, report.samples).to_string())
          << "micro-batch " << micro_batch;
      EXPECT_TRUE(seen.unknown.empty()) << seen.unknown.front();
    }
  }
}

ModelGraph small_resnet18() {
  ModelOptions options;
  options.height = options.width = 32;
  options.classes = 10;
  return build_model("resnet18", options);
}

ModelGraph nano() { return build_model("nano"); }
ModelGraph gpt() { return test::tiny_gpt(0.1); }
ModelGraph cnn() { return test::tiny_cnn(0.1); }

INSTANTIATE_TEST_SUITE_P(Models, ExecutedOperations,
                         ::testing::Values(ObservedModel{"resnet18", small_resnet18},
                                           ObservedModel{"nano", nano}, ObservedModel{"gpt", gpt},
                                           ObservedModel{"llama", test::tiny_llama},
                                           ObservedModel{"cnn", cnn},
                                           ObservedModel{"vit", test::tiny_vit}),
                         [](const auto& model) { return std::string(model.param.name); });

}  // namespace
}  // namespace heteroperf
