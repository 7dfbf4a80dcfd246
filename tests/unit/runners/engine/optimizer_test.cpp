#include "runners/engine/parameters/optimizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

using Values = std::vector<double>;

Values copy_of(const at::Tensor& flat, std::int64_t count) {
  const double* data = flat.const_data_ptr<double>();
  return {data, data + count};
}

/// A store with random gradients, and the formulas written out on plain vectors beside it.
class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() : store_(test::tiny_gpt(), Precision::fp64, 3) {}

  std::size_t size() const { return static_cast<std::size_t>(store_.elements()); }
  bool decays(const OptimizerRecipe& recipe, std::size_t i) const {
    return !recipe.decay_matrices_only ||
           static_cast<std::int64_t>(i) < store_.parts()[0].matrices_end;
  }
  void draw_gradient(std::uint64_t step) {
    double* g = store_.reduced_gradient().mutable_data_ptr<double>();
    for (std::size_t i = 0; i < size(); ++i) g[i] = to_unit(random_bits(step, i)) - 0.5;
  }
  double norm() const {
    double sum = 0;
    for (const double g : copy_of(store_.reduced_gradient(), store_.elements())) sum += g * g;
    return std::sqrt(sum);
  }
  void expect_weights(const Values& expected) const {
    const Values actual = copy_of(store_.master(), store_.elements());
    for (std::size_t i = 0; i < size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-13) << "element " << i;
    }
  }

  ParameterStore store_;
};

OptimizerRecipe recipe_of(OptimizerKind kind) {
  OptimizerRecipe recipe;
  recipe.kind = kind;
  recipe.learning_rate = 0.05;
  recipe.weight_decay = 0.1;
  return recipe;
}

TEST_F(OptimizerTest, SgdFollowsItsFormula) {
  OptimizerRecipe recipe = recipe_of(OptimizerKind::sgd);
  recipe.decay_matrices_only = true;
  Optimizer optimizer(recipe, store_);
  Values w = copy_of(store_.master(), store_.elements()), velocity(size());
  for (std::uint64_t step = 0; step < 4; ++step) {
    draw_gradient(step);
    const Values g = copy_of(store_.reduced_gradient(), store_.elements());
    optimizer.update(recipe.learning_rate, optimizer.gradient_norm());
    for (std::size_t i = 0; i < size(); ++i) {
      const double decay = decays(recipe, i) ? recipe.weight_decay : 0.0;
      velocity[i] = recipe.momentum * velocity[i] + g[i] + decay * w[i];
      w[i] -= recipe.learning_rate * velocity[i];
    }
  }
  expect_weights(w);
}

TEST_F(OptimizerTest, AdamwFollowsItsFormula) {
  OptimizerRecipe recipe = recipe_of(OptimizerKind::adamw);
  Optimizer optimizer(recipe, store_);
  Values w = copy_of(store_.master(), store_.elements()), m(size()), v(size());
  for (int step = 1; step <= 4; ++step) {
    draw_gradient(static_cast<std::uint64_t>(step));
    const Values g = copy_of(store_.reduced_gradient(), store_.elements());
    optimizer.update(recipe.learning_rate, optimizer.gradient_norm());
    for (std::size_t i = 0; i < size(); ++i) {
      m[i] = recipe.beta1 * m[i] + (1 - recipe.beta1) * g[i];
      v[i] = recipe.beta2 * v[i] + (1 - recipe.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(recipe.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(recipe.beta2, step));
      w[i] -= recipe.learning_rate * recipe.weight_decay * w[i];
      w[i] -= recipe.learning_rate * m_hat / (std::sqrt(v_hat) + recipe.epsilon);
    }
  }
  expect_weights(w);
}

TEST_F(OptimizerTest, ClippingScalesTheWholeGradient) {
  OptimizerRecipe recipe = recipe_of(OptimizerKind::sgd);
  recipe.momentum = 0;
  recipe.weight_decay = 0;
  recipe.clip_norm = 0.25;
  Optimizer optimizer(recipe, store_);
  draw_gradient(9);
  ASSERT_GT(norm(), recipe.clip_norm);
  Values w = copy_of(store_.master(), store_.elements());
  const Values g = copy_of(store_.reduced_gradient(), store_.elements());
  for (std::size_t i = 0; i < size(); ++i) {
    w[i] -= recipe.learning_rate * g[i] * recipe.clip_norm / (norm() + 1e-6);
  }
  optimizer.update(recipe.learning_rate, optimizer.gradient_norm());
  expect_weights(w);
}

TEST_F(OptimizerTest, ASmallGradientIsNotClipped) {
  OptimizerRecipe recipe = recipe_of(OptimizerKind::sgd);
  recipe.momentum = 0;
  recipe.weight_decay = 0;
  recipe.clip_norm = 1e6;
  Optimizer optimizer(recipe, store_);
  draw_gradient(9);
  Values w = copy_of(store_.master(), store_.elements());
  const Values g = copy_of(store_.reduced_gradient(), store_.elements());
  for (std::size_t i = 0; i < size(); ++i) w[i] -= recipe.learning_rate * g[i];
  optimizer.update(recipe.learning_rate, optimizer.gradient_norm());
  expect_weights(w);
}

TEST_F(OptimizerTest, TheNormIsEuclideanAndSeesEveryElement) {
  const Optimizer optimizer(recipe_of(OptimizerKind::adamw), store_);
  draw_gradient(5);
  EXPECT_NEAR(optimizer.gradient_norm(), norm(), 1e-10 * norm());
  double* last = store_.reduced_gradient().mutable_data_ptr<double>() + store_.elements() - 1;
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    *last = bad;
    EXPECT_FALSE(std::isfinite(optimizer.gradient_norm()));
  }
}

TEST_F(OptimizerTest, SharesOfTheStatesUpdateLikeAllOfThem) {
  const std::int64_t cut = store_.parts()[0].matrices_end - 48, end = store_.elements();
  ParameterStore shared(test::tiny_gpt(), Precision::fp64, 3);
  OptimizerRecipe recipe = recipe_of(OptimizerKind::adamw);
  recipe.decay_matrices_only = true;
  Optimizer all(recipe, store_);
  Optimizer first(recipe, shared, {{0, 64}, {cut, end}}), second(recipe, shared, {{64, cut}});
  for (std::uint64_t step = 0; step < 3; ++step) {
    draw_gradient(step);
    at::Tensor(shared.reduced_gradient()).copy_(store_.reduced_gradient());
    for (Optimizer* optimizer : {&all, &first, &second}) optimizer->update(0.01, 1.0);
  }
  EXPECT_EQ(shared.fingerprint(), store_.fingerprint());
  const auto own = first.states();
  ASSERT_EQ(own.size(), 4U);
  EXPECT_EQ(own[3].name, "second_moment");
  EXPECT_EQ(own[3].covers, (ArenaRange{cut, end}));
  EXPECT_TRUE(own[3].values.equal(all.states()[1].values.narrow(0, cut, end - cut)));
}

TEST_F(OptimizerTest, RestoredStatesGoOnWithTheSameBits) {
  const OptimizerRecipe recipe = recipe_of(OptimizerKind::adamw);
  ParameterStore copy(test::tiny_gpt(), Precision::fp64, 3);
  Optimizer before(recipe, store_), after(recipe, copy);
  draw_gradient(1);
  before.update(0.01, 1.0);
  at::Tensor(copy.master()).copy_(store_.master());
  const auto saved = before.states(), fresh = after.states();
  ASSERT_EQ(saved.size(), 2U);
  for (std::size_t s = 0; s < saved.size(); ++s) {
    at::Tensor(fresh[s].values).copy_(saved[s].values);
  }
  after.restore_updates(before.updates());
  draw_gradient(2);
  at::Tensor(copy.reduced_gradient()).copy_(store_.reduced_gradient());
  before.update(0.01, 1.0);
  after.update(0.01, 1.0);
  EXPECT_EQ(copy.fingerprint(), store_.fingerprint());
}

TEST(SumOfSquares, HasTheSameBitsWithOneAndTwoThreads) {
  at::Tensor values = at::empty({100003});
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.mutable_data_ptr<float>()[i] =
        static_cast<float>(to_unit(random_bits(1, static_cast<std::uint64_t>(i))));
  }
  const ArenaRange all{0, values.numel()};
  const int before = at::get_num_threads();
  std::vector<double> sums;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    sums.push_back(square_sum(values, std::span(&all, 1)));
  }
  at::set_num_threads(before);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_NEAR(sums[0], 100003.0 / 3, 500);
}

}  // namespace
}  // namespace heteroperf
