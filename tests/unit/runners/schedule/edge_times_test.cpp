#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "metrics/base/error.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/formats/schedule_json.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/search/list_scheduler.hpp"
#include "runners/schedule/search/order_problem.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

/// A chain whose costs and messages take random times; some messages take none of their own.
PipelineGraph random_chain(std::mt19937_64& random, int ranks, int micro_batches) {
  const auto number = [&] { return static_cast<double>(random() % 1000) / 250; };
  PipelineGraph graph = chain_graph(ranks, micro_batches, 1, ChainPlacement::looped,
                                    uniform_costs(ranks, 1, 1, 1, number()));
  for (Segment& segment : graph.segments) {
    segment.forward = number();
    segment.input_gradient = number();
    segment.weight_gradient = number();
  }
  for (Edge& edge : graph.edges) {
    edge.activation_time = random() % 3 == 0 ? 0 : number();
    edge.gradient_time = random() % 3 == 0 ? 0 : number();
  }
  normalise(graph);
  return graph;
}

Schedule scheduled(const char* name, const PipelineGraph& graph) {
  ScheduleRequest request;
  request.graph = graph;
  request.most_evaluations = 200;
  return find_generator(name).make(request);
}

double makespan(const Schedule& schedule, const SimulationOptions& options = {}) {
  return report(schedule, simulate(schedule, options)).makespan;
}

TEST(EdgeTimes, AddToTheLatencyEachInItsDirection) {
  PipelineGraph graph =
      chain_graph(2, 1, 1, ChainPlacement::looped, uniform_costs(2, 1, 2, 3, 0.5));
  graph.edges[0].activation_time = 4;
  graph.edges[0].gradient_time = 8;
  // F, 4.5, F, BW 5, 8.5, BW 5.
  EXPECT_DOUBLE_EQ(makespan(scheduled("1f1b", graph)), 1 + 4.5 + 1 + 5 + 8.5 + 5);
  // Split: only B lies before the message.
  EXPECT_DOUBLE_EQ(makespan(scheduled("zb-h1", graph)), 1 + 4.5 + 1 + 2 + 8.5 + 5);
}

TEST(EdgeTimes, CountForNothingWithinARank) {
  PipelineGraph graph = chain_graph(1, 1, 2, ChainPlacement::looped, uniform_costs(1, 2, 2, 2, 1));
  graph.edges[0].activation_time = graph.edges[0].gradient_time = 7;
  EXPECT_DOUBLE_EQ(makespan(scheduled("gpipe", graph)), 6);
}

TEST(EdgeTimes, AllThatTimesASchedulesAgrees) {
  std::mt19937_64 random(17);
  const char* names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-2p", "auto"};
  for (int trial = 0; trial < 60; ++trial) {
    const PipelineGraph graph = random_chain(random, 2 + trial % 4, 1 + trial % 7);
    const Schedule schedule = scheduled(names[trial % 6], graph);
    const double simulated = makespan(schedule);
    EXPECT_GE(simulated * (1 + 1e-12), lower_bound(graph));

    const OrderProblem problem(graph);
    OrderEvaluator evaluator(problem);
    if (trial % 6 >= 2) {  // BW ends together, B and W apart
      ASSERT_TRUE(evaluator.evaluate(problem.order_of(schedule)));
      EXPECT_NEAR(evaluator.times().makespan, simulated, 1e-9);
    }
    const Schedule lowered = lower(schedule);
    EXPECT_NEAR(makespan(lowered), simulated, 1e-9);
    const ScheduleChecks checks = check_schedule(lowered);
    EXPECT_TRUE(checks.ok());
    EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::rendezvous);

    ListRules rules;
    rules.memory_limit.assign(static_cast<std::size_t>(graph.ranks),
                              std::numeric_limits<double>::infinity());
    ListScheduler scheduler(problem);
    ASSERT_TRUE(scheduler.run(rules));
    ASSERT_TRUE(evaluator.evaluate(scheduler.order()));
    const Schedule listed = problem.to_schedule(evaluator.sequence());
    EXPECT_NEAR(scheduler.times().makespan, makespan(listed), 1e-9);
  }
}

TEST(EdgeTimes, TheBoundIsReachedByOneMicroBatch) {
  std::mt19937_64 random(29);
  for (int trial = 0; trial < 20; ++trial) {
    const PipelineGraph graph = random_chain(random, 2 + trial % 5, 1);
    EXPECT_NEAR(makespan(scheduled("zb-h1", graph)), lower_bound(graph), 1e-9);
  }
}

TEST(EdgeTimes, MessagesOfTheNetworkModelsArriveLaterToo) {
  std::mt19937_64 random(31);
  for (int trial = 0; trial < 20; ++trial) {
    const PipelineGraph graph = random_chain(random, 3, 1);
    const Schedule lowered = lower(scheduled("1f1b", graph));
    SimulationOptions options;
    options.model = trial % 2 == 0 ? NetworkModel::links : NetworkModel::rendezvous;
    // Links without limits and one micro-batch: nothing blocks.
    EXPECT_NEAR(makespan(lowered, options), makespan(lowered), 1e-9);
  }
}

TEST(EdgeTimes, AreCostsNotIdentity) {
  std::mt19937_64 random(37);
  const Schedule timed = lower(scheduled("1f1b", random_chain(random, 3, 4)));
  Schedule plain = timed;
  for (Edge& edge : plain.graph.edges) edge.activation_time = edge.gradient_time = 0;
  EXPECT_EQ(schedule_hash(timed), schedule_hash(plain));
  EXPECT_EQ(schedule_to_text(plain).find("activation_time"), std::string::npos);
  EXPECT_EQ(schedule_from_text(schedule_to_text(timed)), timed);
}

TEST(EdgeTimes, MustBeTimes) {
  PipelineGraph graph = chain_graph(2, 1, 1, ChainPlacement::looped, uniform_costs(2, 1, 1, 1, 0));
  graph.edges[0].gradient_time = -1;
  EXPECT_THROW(normalise(graph), UserError);
}

}  // namespace
}  // namespace heteroperf
