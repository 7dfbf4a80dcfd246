#include "runners/engine/probe/peak_rate.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "metrics/base/clock.hpp"
#include "runners/engine/probe/operation_observer.hpp"

namespace heteroperf {
namespace {

using Names = std::vector<std::string>;

/// Products that take as long as they are told to, on a clock of their own.
class FastestOf : public ::testing::Test {
 protected:
  ProductTrial trial(const std::string& way, double operations, double seconds) {
    return {way, "1x1x1", operations, [=, this]() -> std::function<void()> {
              return [=, this] {
                now_s_ += seconds;
                ++calls_[way];
              };
            }};
  }
  static ProductTrial lacking(const std::string& way) {
    return {way, "1x1x1", 1,
            [way]() -> std::function<void()> { TORCH_CHECK(false, way, " is not there"); }};
  }
  /// Throws in its first call only, as an operator does whose processor lacks something.
  static ProductTrial refusing(const std::string& way) {
    return {way, "1x1x1", 1, [way]() -> std::function<void()> {
              return [way] { TORCH_CHECK(false, way, " cannot run here"); };
            }};
  }
  FastestProduct fastest(const std::vector<ProductTrial>& trials, double seconds) {
    return fastest_of(trials, seconds, [this] { return now_s_; });
  }

  double now_s_ = 100;
  std::map<std::string, int> calls_;
};

TEST_F(FastestOf, IsTheGreatestRateNotTheShortestCall) {
  const FastestProduct found =
      fastest({trial("aten::mm", 10, 0.001), trial("b", 100, 0.005), trial("c", 1, 0.0005)}, 1);
  EXPECT_EQ(found.name, "b 1x1x1");
  EXPECT_EQ(found.operations, 100);
  EXPECT_EQ(found.tried, (Names{"aten::mm", "b", "c"}));
  EXPECT_NEAR(found.mm_ops_per_second, 10 / 0.001, 1e-6) << "times are differences";
  const int before = calls_["b"];
  found.multiply();
  EXPECT_EQ(calls_["b"], before + 1);
}

TEST_F(FastestOf, EveryTrialGetsItsPartOfTheTime) {
  fastest({trial("aten::mm", 1, 0.01), trial("b", 1, 0.01)}, 1);
  EXPECT_NEAR(now_s_, 101, 0.03);
  EXPECT_NEAR(calls_["aten::mm"], 50, 2);
  EXPECT_NEAR(calls_["b"], 50, 2);
}

TEST_F(FastestOf, WhatTheMachineLacksIsLeftOut) {
  const FastestProduct found =
      fastest({trial("aten::mm", 1, 0.01), lacking("b"), refusing("c"), trial("d", 2, 0.01)}, 0.1);
  EXPECT_EQ(found.tried, (Names{"aten::mm", "d"}));
  EXPECT_EQ(found.name, "d 1x1x1");
  EXPECT_THROW(fastest({lacking("aten::mm")}, 1), c10::Error);
}

TEST_F(FastestOf, ASlowMachineEndsInTime) {
  std::vector<ProductTrial> trials{trial("aten::mm", 1, 3)};
  for (const char* way : {"b", "c", "d"}) trials.push_back(trial(way, 100, 3));
  const FastestProduct found = fastest(trials, 1);
  EXPECT_EQ(found.tried, Names{"aten::mm"}) << "the time was over";
  EXPECT_EQ(calls_["aten::mm"], 2);
  EXPECT_EQ(now_s_, 106);
}

TEST_F(FastestOf, TheBestOfAWaysShapesIsItsOwn) {
  const FastestProduct found = fastest(
      {trial("aten::mm", 1, 0.01), trial("aten::mm", 3, 0.01), trial("aten::mm", 2, 0.01)}, 0.3);
  EXPECT_EQ(found.tried, Names{"aten::mm"});
  EXPECT_NEAR(found.mm_ops_per_second, 300, 1e-6) << "times are differences";
}

/// The dispatcher counts what each product says that it does.
TEST(HostProducts, DoTheOperationsTheySay) {
  const bool has_onednn =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
  const c10::InferenceMode no_tape;
  use_threads(1);
  std::set<std::string> shapes;
  std::map<std::string, int> observed;
  for (const ProductTrial& one : host_products(at::kFloat, 1)) {
    shapes.insert(one.shape);
    ObservedOperations seen;
    try {
      const std::function<void()> multiply = one.prepare();
      const OperationObserver observer;
      multiply();
      seen = observer.observed();
    } catch (const c10::Error&) {
      const bool may_be_missing = one.way == "mkldnn::_linear_pointwise" || one.way == "onednn";
      EXPECT_TRUE(may_be_missing) << one.way;
      continue;
    }
    ++observed[one.way];
    EXPECT_EQ(seen.executed, Ops(static_cast<std::uint64_t>(one.operations))) << one.way;
    EXPECT_EQ(seen.calls, 1U) << one.way;
    EXPECT_TRUE(seen.unknown.empty()) << seen.unknown.front();
  }
  EXPECT_EQ(shapes.size(), 6U) << "three of products, three of convolutions";
  for (const char* way : {"aten::mm", "aten::addmm", "own", "aten::convolution"}) {
    EXPECT_EQ(observed[way], 3) << way;
  }
  if (!has_onednn) {
    EXPECT_EQ(observed["mkldnn::_linear_pointwise"], 0);
  }
}

TEST(HostProducts, GrowWithTheThreads) {
  const auto one = host_products(at::kFloat, 1), eight = host_products(at::kFloat, 8);
  ASSERT_EQ(one.size(), eight.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].way, eight[i].way);
    EXPECT_EQ(eight[i].operations, 8 * one[i].operations) << eight[i].way << " " << eight[i].shape;
  }
}

TEST(FindFastestProduct, OfEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    const FastestProduct found = find_fastest_product(precision, 1, 0.001);
    EXPECT_EQ(found.tried.front(), "aten::mm");
    EXPECT_GT(found.mm_ops_per_second, 0);
    EXPECT_GE(found.ops_per_second, found.mm_ops_per_second);
    EXPECT_GT(found.operations, 0);
    found.multiply();
  }
}

TEST(FastestCopy, CountsWhatIsReadAndWrittenOfTheQuickestCall) {
  constexpr std::uint64_t bytes = 1 << 16;
  double now_s = 7;
  int copies = 0;
  // The second call is the quickest; the one before the first, which touches the memory, is none.
  const std::vector<double> took_s{9.0, 0.5, 0.125, 0.25, 0.25, 0.25};
  const double rate = fastest_copy(
      at::TensorOptions(), bytes, 1, [&] { now_s += took_s.at(copies++); }, [&] { return now_s; });
  EXPECT_DOUBLE_EQ(rate, 2 * bytes / 0.125);
  EXPECT_EQ(copies, 5) << "it ends once its second is over";
}

TEST(FastestCopy, OfTheHostsMemoryIsARate) {
  const double rate = fastest_copy(
      at::TensorOptions(), 1 << 22, 0.01, [] {}, monotonic_s);
  EXPECT_GT(rate, 1e6);
}

}  // namespace
}  // namespace heteroperf
