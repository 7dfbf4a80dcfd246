#include "runners/plan/ready/plan_schedule.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "runners/plan/staged_graph.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

/// Random ends of stages that leave none without something to train.
std::vector<std::size_t> random_ends(std::mt19937_64& random, std::size_t nodes,
                                     std::size_t stages) {
  std::set<std::size_t> ends;
  while (ends.size() + 1 < stages) ends.insert(2 + random() % (nodes - 2));
  return {ends.begin(), ends.end()};
}

std::size_t count(const Schedule& schedule, Op op) {
  std::size_t sum = 0;
  for (const auto& program : schedule.programs) {
    sum += static_cast<std::size_t>(std::count_if(
        program.begin(), program.end(), [&](const Instruction& i) { return i.op == op; }));
  }
  return sum;
}

TEST(PlanSchedule, RandomGraphsCutAnywhereRunWithEverySchedule) {
  std::mt19937_64 random(11);
  const char* names[] = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "auto", "chimera", "dualpipe"};
  for (int trial = 0; trial < 60; ++trial) {
    const ModelGraph graph = random_graph(random, 10);
    Plan plan = chain_plan(graph, random_ends(random, graph.nodes().size(), 4));
    plan.schedule = names[trial % 8];
    plan.micro_batches = 8;
    for (PlanStage& stage : plan.stages) {
      if (random() % 2 == 0) stage.recomputation = Recomputation::full;
    }
    if (trial % 8 >= 6) {
      for (StageId s; s < 4; ++s) {
        plan.stages[s].replicas.push_back({{RankId(3 - s.value())}, 1, "", 1});
      }
    }
    const StagedGraph staged = cut_graph(graph, plan);
    const Schedule schedule = plan_schedule(graph, staged, plan);
    const ScheduleChecks checks = check_schedule(schedule);
    EXPECT_TRUE(checks.ok()) << plan.schedule;
    EXPECT_EQ(checks.deadlock_free, DeadlockFreedom::rendezvous) << plan.schedule;
    const std::size_t copies = trial % 8 >= 6 ? 2 : 1;
    EXPECT_EQ(schedule.graph.edges.size(), copies * staged.edges.size());
    EXPECT_EQ(schedule.graph.tied.size(), staged.tied.size());
    EXPECT_EQ(count(schedule, Op::reduce_tied) > 0, !staged.tied.empty());
  }
}

TEST(PlanSchedule, RecomputationStandsBeforeTheFirstGradient) {
  const ModelGraph graph = linear_chain(6);
  for (const char* name : {"1f1b", "zb-h1", "dualpipe"}) {
    Plan plan = chain_plan(graph, {4, 6});
    plan.stages.insert(plan.stages.begin() + 1, PlanStage());
    plan.stages[1].nodes = {plan.stages[2].nodes.front()};
    plan.stages[2].nodes.erase(plan.stages[2].nodes.begin());
    for (StageId s; s < 4; ++s) {
      plan.stages[s].replicas = {{{RankId(s.value())}, 1, "", 0}};
      if (std::string(name) == "dualpipe") {
        plan.stages[s].replicas.push_back({{RankId(3 - s.value())}, 1, "", 1});
      }
    }
    plan.stages[1].recomputation = Recomputation::full;
    plan.schedule = name;
    plan.micro_batches = 8;
    const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
    EXPECT_EQ(count(schedule, Op::recompute), 8u) << name;
    for (const auto& program : schedule.programs) {
      std::set<std::pair<SegmentId, MicroBatchId>> again;
      for (const Instruction& i : program) {
        if (i.op == Op::recompute) {
          EXPECT_EQ(i.segment.value() % 4, 1);
          EXPECT_FALSE(i.fused_with_next);
          EXPECT_TRUE(again.emplace(i.segment, i.micro_batch).second);
        }
        if (is_gradient(i.op) && i.segment.value() % 4 == 1) {
          EXPECT_TRUE(again.contains({i.segment, i.micro_batch})) << name;
        }
      }
    }
  }
}

TEST(PlanSchedule, RecomputationDoesNotWaitForTheGradient) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.stages[0].recomputation = Recomputation::full;
  plan.micro_batches = 1;
  const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
  const std::vector<Instruction>& program = schedule.programs[0];
  const auto at = [&](Op op) {
    return std::find_if(program.begin(), program.end(),
                        [&](const Instruction& i) { return i.op == op; });
  };
  EXPECT_LT(at(Op::recompute), at(Op::recv_grad));
  EXPECT_LT(at(Op::recv_grad), at(Op::backward));
}

TEST(PlanSchedule, TimesBecomeCostsOfSegmentsAndEdges) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.micro_batches = 2;
  StageTimes times;
  times.compute = {{{1, 0, 2, 3}}, {{4, 0, 5, 6}}};
  times.activation_s = {0.5};
  times.gradient_s = {0.25};
  times.reduction_s = times.optimizer_s = {0, 0};
  const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan, &times);
  EXPECT_EQ(schedule.graph.segments[1].input_gradient, 5);
  EXPECT_EQ(schedule.graph.edges[0].activation_time, 0.5);
  const Timeline timeline = simulate(schedule);
  double first_forward_of_second = -1;
  for (std::size_t i = 0; i < schedule.programs[1].size(); ++i) {
    if (schedule.programs[1][i].op != Op::forward) continue;
    first_forward_of_second = timeline.spans[1][i].start;
    break;
  }
  EXPECT_DOUBLE_EQ(first_forward_of_second, 1.5);
}

TEST(PlanSchedule, RolesNameEveryRanksSegments) {
  const ModelGraph graph = linear_chain(8);
  EvenPlanRequest request;
  request.pipeline = 2;
  request.data = 2;
  request.chunks = 2;
  request.schedule = "zb-v";
  request.micro_batches = 4;
  const Plan plan = even_plan(graph, request);
  const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
  const std::vector<RankRole> roles = rank_roles(plan, schedule);
  ASSERT_EQ(roles.size(), 4u);
  EXPECT_EQ(roles[0].position, PositionId(0));
  EXPECT_EQ(roles[3].position, PositionId(1));
  ASSERT_EQ(roles[3].parts.size(), 2u);
  EXPECT_EQ(roles[3].parts[0].stage, StageId(1));
  EXPECT_EQ(roles[3].parts[1].stage, StageId(2));
  EXPECT_EQ(roles[3].parts[0].replica, ReplicaId(1));
}

TEST(PlanSchedule, UnequalReplicasOfNeighbouringStagesAreFine) {
  const ModelGraph graph = linear_chain(4);
  Plan plan = chain_plan(graph, {4});
  plan.stages[0].replicas = {{{RankId(0)}, 3, "", 0}, {{RankId(1)}, 1, "", 0}};
  plan.stages[1].replicas = {{{RankId(2), RankId(3)}, 4, "", 0}};
  plan.micro_batches = 4;
  const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
  EXPECT_EQ(schedule.graph.ranks, 2);
  const std::vector<RankRole> roles = rank_roles(plan, schedule);
  EXPECT_EQ(roles[1].parts[0].replica, ReplicaId(1));
  EXPECT_EQ(roles[3].parts[0].tensor_index, 1);
}

// Stages that share ranks are on one position under `auto`, also those that do so over a third one.
TEST(PlanSchedule, StagesWithCommonRanksAreOnOnePosition) {
  const ModelGraph graph = linear_chain(8);
  Plan plan = chain_plan(graph, {3, 5, 7});
  plan.schedule = "auto";
  plan.micro_batches = 2;
  const std::vector<std::vector<RankId>> ranks{
      {RankId(0), RankId(1)}, {RankId(4)}, {RankId(2), RankId(3)}, {RankId(1), RankId(2)}};
  for (const StageId s : plan.stages.ids()) {
    plan.stages[s].replicas.clear();
    for (const RankId rank : ranks[s.index()])
      plan.stages[s].replicas.push_back({{rank}, 1, "", 0});
  }
  const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
  const std::vector<RankRole> roles = rank_roles(plan, schedule);
  ASSERT_EQ(roles.size(), 5u);
  for (const int rank : {0, 1, 2, 3}) EXPECT_EQ(roles[rank].position, PositionId(0)) << rank;
  EXPECT_EQ(roles[4].position, PositionId(1));
  EXPECT_EQ(roles[0].parts.size(), 1u);
  EXPECT_EQ(roles[1].parts.size(), 2u);
  EXPECT_TRUE(roles[1].has(SegmentId(3)));
  EXPECT_FALSE(roles[1].has(SegmentId(2)));
  plan.schedule = "1f1b";
  EXPECT_TRUE(says(problems_of([&] { plan_schedule(graph, cut_graph(graph, plan), plan); }),
                   "rank 2 of stage 3 is on positions 2 and 3"));
}

// A rank holds one copy of a tied weight, so replicas of its stages share all of their ranks or
// none.
TEST(PlanSchedule, StagesOfATiedWeightShareWholeReplicas) {
  ModelGraph graph;
  NodeId x = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, 4}, {});
  x = graph.add("table", Embedding{16, 8}, {x});
  x = graph.add("head", Linear{16, false, "table"}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  Plan plan;
  plan.schedule = "auto";
  plan.stages.resize(2);
  plan.stages[0].nodes = {"tokens", "table"};
  plan.stages[0].replicas = {{{RankId(0), RankId(1)}, 1, "", 0}};
  plan.stages[1].nodes = {"head", "loss"};
  plan.stages[1].replicas = {{{RankId(0), RankId(2)}, 1, "", 0}};
  const auto problems = [&] {
    return problems_of([&] { plan_schedule(graph, cut_graph(graph, plan), plan); });
  };
  EXPECT_TRUE(says(problems(), "both hold the weight of 'table'"));
  plan.stages[1].replicas[0].ranks[1] = RankId(1);
  EXPECT_TRUE(problems().empty());
}

TEST(PlanSchedule, PlansThatDoNotFitTheirScheduleAreRefused) {
  const ModelGraph graph = linear_chain(8);
  const auto problems = [&](const Plan& plan) {
    return problems_of([&] { plan_schedule(graph, cut_graph(graph, plan), plan); });
  };
  Plan plan = chain_plan(graph, {3, 5, 7});
  plan.micro_batches = 4;
  plan.schedule = "zb-v";
  plan.chunks = 2;
  EXPECT_TRUE(says(problems(plan), "puts both on position"));
  plan.chunks = 3;
  EXPECT_TRUE(says(problems(plan), "4 stages with 3 chunks"));
  plan.chunks = 1;
  plan.schedule = "chimera";
  EXPECT_TRUE(says(problems(plan), "stage 0 has no replica in one of the two directions"));
  plan.schedule = "1f1b";
  plan.stages[1].replicas[0].ranks = {RankId(0)};
  EXPECT_TRUE(says(problems(plan), "rank 0 of stage 1 is on positions 0 and 1"));
  plan.stages[1].replicas[0] = {{RankId(1)}, 1, "", 1};
  EXPECT_TRUE(says(problems(plan), "1f1b has one direction"));
  plan = chain_plan(graph, {3, 5, 7});
  plan.schedule = "nothing";
  EXPECT_TRUE(says(problems(plan), "unknown schedule"));
  plan.schedule = "auto";
  plan.chunks = 2;
  EXPECT_TRUE(says(problems(plan), "lie on more than 2 sets of ranks"));
}

}  // namespace
}  // namespace heteroperf
