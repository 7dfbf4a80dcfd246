#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

/// What some steps and an evaluation leave behind on rank 0.
struct PlannedOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0, accuracy = 0;
};

PlannedOutcome train_planned(const TrainingSpec& spec, Communicator& group, int steps) {
  const std::unique_ptr<TrainingSession> session = start_training(spec, group);
  PlannedOutcome outcome;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = session->step();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.gradient_norm);
  }
  const EvaluationReport evaluation = session->evaluate(13);
  outcome.evaluation = evaluation.loss;
  outcome.accuracy = evaluation.accuracy;
  return outcome;
}

PlannedOutcome train_on_threads(const TrainingSpec& spec, int steps = 3) {
  PlannedOutcome outcome;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const PlannedOutcome mine = train_planned(spec, *world.communicator, steps);
    if (world.communicator->rank() == RankId(0)) outcome = mine;
  });
  return outcome;
}

TrainingSpec planned(const ModelGraph& graph, const EvenPlanRequest& request,
                     Precision precision = Precision::fp64) {
  TrainingSpec spec = test::small_training(graph, precision);
  spec.recipe.clip_norm = 0.5;
  spec.use_plan(even_plan(graph, request));
  return spec;
}

double relative_to_second(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(b), 1e-300);
}

/// The same global batch on one rank: micro-batches as the plan's replicas cut them.
PlannedOutcome serial(const ModelGraph& graph, const EvenPlanRequest& request, int steps = 3) {
  EvenPlanRequest alone;
  alone.micro_batch = request.micro_batch;
  alone.micro_batches = request.micro_batches * request.data;
  return train_on_threads(planned(graph, alone), steps);
}

void expect_close(const PlannedOutcome& a, const PlannedOutcome& b, double limit,
                  const std::string& name) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << name;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LE(relative_to_second(a.losses[i], b.losses[i]), limit) << name << " step " << i;
    EXPECT_LE(relative_to_second(a.norms[i], b.norms[i]), limit) << name << " step " << i;
  }
  EXPECT_LE(relative_to_second(a.evaluation, b.evaluation), limit) << name;
  EXPECT_EQ(a.accuracy, b.accuracy) << name;
}

struct ScheduleCase {
  const char* name;
  int pipeline, chunks;
};

class Schedules : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Schedules, TrainAsOneRankDoes) {
  const auto [name, pipeline, chunks] = GetParam();
  const ModelGraph graph = test::gpt(16, 0.1);
  EvenPlanRequest request;
  request.pipeline = pipeline;
  request.chunks = chunks;
  request.micro_batch = 2;
  request.micro_batches = 8;
  request.schedule = name;
  expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-12, name);
}

INSTANTIATE_TEST_SUITE_P(
    Even, Schedules,
    ::testing::Values(ScheduleCase{"1f1b", 2, 1}, ScheduleCase{"gpipe", 4, 1},
                      ScheduleCase{"1f1b", 4, 1}, ScheduleCase{"interleaved-1f1b", 2, 2},
                      ScheduleCase{"interleaved-1f1b", 4, 2}, ScheduleCase{"looped-bfs", 2, 2},
                      ScheduleCase{"zb-h1", 2, 1}, ScheduleCase{"zb-h1", 4, 1},
                      ScheduleCase{"zb-h2", 4, 1}, ScheduleCase{"zb-v", 2, 2},
                      ScheduleCase{"zb-v", 4, 2}, ScheduleCase{"v-half", 4, 2},
                      ScheduleCase{"v-min", 4, 2}, ScheduleCase{"chimera", 4, 1},
                      ScheduleCase{"dualpipe", 4, 1}, ScheduleCase{"dualpipev", 4, 2},
                      ScheduleCase{"auto", 2, 1}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_on_" + std::to_string(tested.param.pipeline);
    });

TEST(Pipeline, WithoutReplicasTheBitsAreThoseOfOneRank) {
  const ModelGraph graph = test::gpt(4, 0.1);
  EvenPlanRequest request;
  request.pipeline = 2;
  request.micro_batch = 2;
  request.micro_batches = 4;
  const PlannedOutcome two = train_on_threads(planned(graph, request));
  const PlannedOutcome one = serial(graph, request);
  EXPECT_EQ(two.losses, one.losses);
}

TEST(Pipeline, ReplicasAndTensorParallelRanksTrainAsOne) {
  const ModelGraph graph = test::gpt(4, 0.1);
  for (const EvenPlanRequest& request :
       {EvenPlanRequest{.pipeline = 2, .data = 2, .micro_batch = 2, .micro_batches = 4},
        EvenPlanRequest{.tensor = 2, .micro_batch = 2, .micro_batches = 2},
        EvenPlanRequest{
            .pipeline = 2, .tensor = 2, .data = 2, .micro_batch = 1, .micro_batches = 4},
        EvenPlanRequest{.tensor = 4, .micro_batch = 2, .micro_batches = 2}}) {
    expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-11,
                 "p " + std::to_string(request.pipeline) + " t " + std::to_string(request.tensor) +
                     " d " + std::to_string(request.data));
  }
}

// A stage may end where a tensor has cut consumers on both sides, and whole ones beside them.
TEST(Pipeline, SequenceParallelRanksTrainAsOne) {
  const std::vector<std::pair<std::string, ModelGraph>> models{
      {"gpt", test::gpt(4)},
      {"gpt with dropout", test::gpt(4, 0.1)},
      {"llama", test::tiny_llama()},
      {"vit", test::tiny_vit()}};
  for (const auto& [name, graph] : models) {
    for (EvenPlanRequest request :
         {EvenPlanRequest{.tensor = 2, .micro_batch = 2, .micro_batches = 2},
          EvenPlanRequest{.tensor = 4, .micro_batch = 1, .micro_batches = 2},
          EvenPlanRequest{.pipeline = 2, .tensor = 2, .data = 2, .micro_batches = 4}}) {
      if (name == "vit" && request.tensor * request.pipeline > 2) continue;
      if (name == "llama" && request.tensor > 2) continue;  // it has two key-value heads
      request.sequence_parallel = true;
      expect_close(
          train_on_threads(planned(graph, request)), serial(graph, request), 1e-11,
          fmt::format("{} p {} t {} d {}", name, request.pipeline, request.tensor, request.data));
    }
  }
}

// Both directions of DualPipe use one norm; recomputation and W apart go the same way again.
TEST(Pipeline, SequenceParallelRanksGoWithAnySchedule) {
  const ModelGraph graph = test::gpt(8);
  for (EvenPlanRequest request :
       {EvenPlanRequest{.pipeline = 2, .schedule = "dualpipe"},
        EvenPlanRequest{.pipeline = 2, .chunks = 2, .schedule = "zb-v"},
        EvenPlanRequest{.pipeline = 2, .schedule = "zb-h1", .recomputation = Recomputation::full},
        EvenPlanRequest{.recomputation = Recomputation::selective, .zero_stage = 1}}) {
    request.tensor = 2;
    request.micro_batch = 2;
    request.micro_batches = 4;
    request.sequence_parallel = true;
    expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-11,
                 request.schedule);
  }
}

TEST(Pipeline, SequenceParallelRanksHoldWhatTheLedgerSaysAndLess) {
  const ModelGraph graph = test::gpt(8);
  std::vector<double> peaks;
  for (const bool by_rows : {false, true}) {
    const EvenPlanRequest request{
        .tensor = 2, .micro_batch = 16, .micro_batches = 2, .sequence_parallel = by_rows};
    const TrainingSpec spec = planned(graph, request, Precision::fp32);
    const std::vector<MemoryLedger>& ledgers = spec.ready->memory;
    double peak = 0;
    run_on_threads(2, {}, [&](World& world) {
      const auto session = start_training(spec, *world.communicator);
      for (int step = 0; step < 3; ++step) session->step();
      if (world.communicator->rank() == RankId(0)) {
        peak = static_cast<double>(session->memory().peak_bytes);
      }
    });
    const auto planned_peak = static_cast<double>(ledgers.front().total().value());
    EXPECT_NEAR(peak / planned_peak, 1.0, 0.05) << "by rows: " << by_rows;
    peaks.push_back(peak);
  }
  EXPECT_LT(peaks[1], peaks[0]);
}

TEST(Pipeline, TensorParallelRanksMeetStageBordersAnywhere) {
  for (const char* model : {"gpt", "llama", "vit"}) {
    const ModelGraph graph = model == std::string("gpt")     ? test::gpt(2)
                             : model == std::string("llama") ? test::tiny_llama()
                                                             : test::tiny_vit();
    for (const int pipeline : {2, 3, 4, 5}) {
      const EvenPlanRequest request{
          .pipeline = pipeline, .tensor = 2, .micro_batch = 2, .micro_batches = 2};
      expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-11,
                   std::string(model) + " p " + std::to_string(pipeline));
    }
  }
}

/// A replica as (ranks, samples).
using Replica = std::pair<std::vector<int>, std::int64_t>;

/// An even cut into stages with these replicas.
TrainingSpec uneven(const ModelGraph& graph, const std::vector<std::vector<Replica>>& stages,
                    int micro_batches, int zero_stage = 0) {
  TrainingSpec spec = planned(graph, {.pipeline = static_cast<int>(stages.size()),
                                      .micro_batches = micro_batches,
                                      .zero_stage = zero_stage});
  Plan plan = spec.plan();
  for (const StageId s : plan.stages.ids()) {
    plan.stages[s].replicas.clear();
    for (const auto& [ranks, samples] : stages[s.index()]) {
      StageReplica& replica = plan.stages[s].replicas.emplace_back();
      for (const int rank : ranks) replica.ranks.emplace_back(rank);
      replica.micro_batch = samples;
    }
  }
  spec.use_plan(plan);
  return spec;
}

// Tensors of 64 KiB, from one holder to several that each take all of them.
TEST(Pipeline, LargeTensorsReachMoreRanksThanHoldThem) {
  const ModelGraph graph = test::gpt(2);
  const EvenPlanRequest alone{.micro_batch = 16, .micro_batches = 2};
  const PlannedOutcome expected = train_on_threads(planned(graph, alone));
  expect_close(train_on_threads(uneven(graph, {{{{0}, 16}}, {{{1, 2}, 16}}}, 2)), expected, 1e-11,
               "one to two");
  expect_close(train_on_threads(uneven(graph, {{{{0, 1}, 16}}, {{{2}, 8}, {{3}, 8}}}, 2)), expected,
               1e-11, "two to one and one");
}

TEST(Pipeline, ReplicasMayBeUnequal) {
  const ModelGraph graph = test::gpt(4, 0.1);
  const struct {
    const char* name;
    std::vector<std::vector<Replica>> stages;
  } cases[] = {
      {"batch 3:1", {{{{0}, 3}, {{1}, 1}}}},
      {"batch 5:2:1", {{{{0}, 5}, {{1}, 2}, {{2}, 1}}}},
      {"tensor degree by stage", {{{{0, 1}, 4}}, {{{2}, 4}}}},
      {"replicas by stage", {{{{0}, 1}, {{1}, 3}}, {{{2}, 4}}}},
      {"more and more", {{{{0}, 4}}, {{{1}, 2}, {{2}, 2}}, {{{3, 4}, 3}, {{5}, 1}}}},
      {"tensor degrees in one group", {{{{0, 1}, 3}, {{2}, 1}}}},
      {"four and two", {{{{0, 1, 2, 3}, 3}, {{4, 5}, 1}}}},
  };
  for (const auto& tested : cases) {
    for (const int zero : {0, 1}) {
      const TrainingSpec spec = uneven(graph, tested.stages, 4, zero);
      const EvenPlanRequest alone{.micro_batch = spec.plan().micro_batch_samples(),
                                  .micro_batches = 4};
      expect_close(train_on_threads(spec), serial(graph, alone), 1e-11,
                   std::string(tested.name) + (zero == 1 ? " with spread states" : ""));
    }
  }
}

TEST(Pipeline, ThinLinksMayCarryFewerBits) {
  const ModelGraph graph = test::gpt(4);
  TrainingSpec spec =
      planned(graph, {.pipeline = 2, .micro_batch = 2, .micro_batches = 4}, Precision::fp32);
  const PlannedOutcome plain = train_on_threads(spec);
  for (const WireFormat format : {WireFormat::bf16, WireFormat::int8}) {
    Plan plan = spec.plan();
    plan.wires = {{0, 1, format}};
    spec.use_plan(plan);
    const PlannedOutcome packed = train_on_threads(spec);
    EXPECT_NE(packed.losses.back(), plain.losses.back()) << to_string(format);
    for (std::size_t i = 0; i < plain.losses.size(); ++i) {
      EXPECT_LE(relative_to_second(packed.losses[i], plain.losses[i]), 2e-2) << to_string(format);
    }
  }
}

/// Both ends of the model, and so both uses of the tied weight, lie on the first rank of a V.
TEST(Pipeline, Bf16SumsATiedWeightOverTheStagesOfARank) {
  const ModelGraph graph = test::gpt(4);
  const EvenPlanRequest request{
      .pipeline = 2, .chunks = 2, .micro_batch = 2, .micro_batches = 4, .schedule = "zb-v"};
  const PlannedOutcome v = train_on_threads(planned(graph, request, Precision::bf16));
  const PlannedOutcome alone =
      train_on_threads(planned(graph, {.micro_batch = 2, .micro_batches = 4}, Precision::bf16));
  for (std::size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_LE(relative_to_second(v.losses[i], alone.losses[i]), 5e-3);
    EXPECT_LE(relative_to_second(v.norms[i], alone.norms[i]), 2e-2);
  }
}

TEST(Pipeline, ConvolutionNetsWithSkipEdges) {
  const ModelGraph graph = test::tiny_cnn(0.1);
  EvenPlanRequest request;
  request.pipeline = 3;
  request.micro_batch = 4;
  request.micro_batches = 4;
  expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-12, "cnn");
}

/// Trains `before` steps on one plan, the others from a checkpoint on another.
TEST(Pipeline, ACheckpointGoesOnUnderAnyPlan) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("heteroperf-pipeline-{}", getpid());
  const ModelGraph graph = test::gpt(4, 0.1);
  EvenPlanRequest four{.pipeline = 4, .micro_batch = 2, .micro_batches = 4};
  EvenPlanRequest shared{.pipeline = 2, .tensor = 2, .micro_batch = 2, .micro_batches = 4};
  EvenPlanRequest replicas{
      .pipeline = 2, .data = 2, .micro_batch = 1, .micro_batches = 4, .zero_stage = 1};
  const PlannedOutcome whole = train_on_threads(planned(graph, four), 4);
  for (const EvenPlanRequest& first : {four, replicas}) {
    for (const EvenPlanRequest& second : {shared, replicas}) {
      std::filesystem::remove_all(folder);
      const TrainingSpec before = planned(graph, first), after = planned(graph, second);
      run_on_threads(before.plan().ranks(), {}, [&](World& world) {
        const auto session = start_training(before, *world.communicator);
        for (int i = 0; i < 2; ++i) session->step();
        session->save((folder / "step-2").string());
      });
      run_on_threads(after.plan().ranks(), {}, [&](World& world) {
        const auto session = start_training(after, *world.communicator);
        session->restore((folder / "step-2").string());
        for (std::size_t i = 2; i < 4; ++i) {
          const StepReport report = session->step();
          EXPECT_EQ(report.step, i);
          EXPECT_LE(relative_to_second(report.loss, whole.losses[i]), 1e-11);
          EXPECT_LE(relative_to_second(report.gradient_norm, whole.norms[i]), 1e-11);
        }
      });
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(Pipeline, RecomputationChangesNoBits) {
  const ModelGraph graph = test::gpt(4, 0.1);
  EvenPlanRequest request;
  request.pipeline = 2;
  request.micro_batch = 2;
  request.micro_batches = 4;
  const PlannedOutcome none = train_on_threads(planned(graph, request));
  for (const Recomputation again : {Recomputation::selective, Recomputation::full}) {
    request.recomputation = again;
    const PlannedOutcome other = train_on_threads(planned(graph, request));
    EXPECT_EQ(other.losses, none.losses) << to_string(again);
    EXPECT_EQ(other.norms, none.norms) << to_string(again);
  }
}

/// Times of a plan as if stage s took (s mod 2 + 1) ms forward, and so on.
StageTimes made_up_times(const Plan& plan, const StagedGraph& staged) {
  StageTimes times;
  for (const StageId s : plan.stages.ids()) {
    const double unit_s = 1e-3 * static_cast<double>(s.value() % 2 + 1);
    const bool again = plan.stages[s].recomputation == Recomputation::full;
    times.compute.emplace_back();
    for (std::size_t r = 0; r < plan.stages[s].replicas.size(); ++r) {
      times.compute.back().push_back({.forward_s = unit_s,
                                      .recompute_s = again ? unit_s : 0.0,
                                      .input_gradient_s = 1.5 * unit_s,
                                      .weight_gradient_s = 0.7 * unit_s});
    }
    times.reduction_s.push_back(plan.stages[s].replicas.size() > 1 ? 2e-3 : 0.0);
    times.optimizer_s.push_back(1e-4);
  }
  times.activation_s.assign(staged.edges.size(), 3e-4);
  times.gradient_s.assign(staged.edges.size(), 2e-4);
  times.agreement_s = 5e-5;
  return times;
}

// The modelled step is that of the simulator whatever the machine does meanwhile.
TEST(Pipeline, PacedRanksKeepToThePrediction) {
  const ModelGraph graph = test::gpt(8);
  for (const EvenPlanRequest& request :
       {EvenPlanRequest{.pipeline = 4, .micro_batches = 6, .schedule = "1f1b"},
        EvenPlanRequest{.pipeline = 4, .micro_batches = 6, .schedule = "zb-h1"},
        EvenPlanRequest{.pipeline = 2, .chunks = 2, .micro_batches = 6, .schedule = "zb-v"},
        EvenPlanRequest{
            .pipeline = 2, .data = 2, .micro_batches = 4, .recomputation = Recomputation::full}}) {
    TrainingSpec spec = planned(graph, request);
    ReadyPlan ready = *spec.ready;
    const StageTimes times = made_up_times(ready.plan, ready.staged);
    ready.schedule = plan_schedule(graph, ready.staged, ready.plan, &times);
    const Prediction prediction =
        predict(ready.staged, ready.plan, times, ready.schedule, simulate(ready.schedule));
    spec.ready = std::make_shared<const ReadyPlan>(ready);
    spec.pacing = Pacing{times, 1.0, 1};
    run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
      const auto session = start_training(spec, *world.communicator);
      for (int i = 0; i < 2; ++i) session->step();
      EXPECT_NEAR(session->pacing()->step_s, prediction.step_time_s, 1e-9) << request.schedule;
    });
  }
}

TEST(Pipeline, KeepsNoMoreThanTheValidatorSays) {
  const ModelGraph graph = test::gpt(8);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const TrainingSpec spec =
        planned(graph, EvenPlanRequest{.pipeline = 4, .micro_batches = 8, .schedule = schedule});
    const MemoryPeaks peaks = memory_peaks(spec.ready->schedule);
    run_on_threads(4, {}, [&](World& world) {
      const auto session = start_training(spec, *world.communicator);
      session->step();
      const auto rank = world.communicator->rank().index();
      EXPECT_EQ(session->peak_activations(), peaks.memory[rank]) << schedule << " rank " << rank;
    });
  }
}

}  // namespace
}  // namespace heteroperf
