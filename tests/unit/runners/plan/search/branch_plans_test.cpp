// Plans that place the components of a model beside each other, and the baselines that they must
// not be worse than.

#include "runners/plan/search/branch_plans.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/search/baseline_plans.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// Adds a component of linears behind an embedding; gives its last node.
NodeId add_component(ModelGraph& graph, const std::string& name, int layers,
                     const std::vector<NodeId>& joined = {}) {
  Input input;
  input.kind = InputKind::tokens;
  input.length = 16;
  const NodeId tokens = graph.add(name + ".tokens", input, {}, name);
  NodeId last = graph.add(name + ".x", Embedding{16, 32}, {tokens}, name);
  for (const NodeId other : joined) {
    last = graph.add(name + ".with " + graph.node(other).name, Add{}, {last, other}, name);
  }
  for (int i = 0; i < layers; ++i) {
    last = graph.add(name + ".y" + std::to_string(i), Linear{32, false, ""}, {last}, name);
  }
  return last;
}

/// Two encoders whose outputs are added to the embeddings of a language model.
ModelGraph three_components() {
  ModelGraph graph;
  const NodeId vision = add_component(graph, "vision", 6);
  const NodeId audio = add_component(graph, "audio", 3);
  const NodeId last = add_component(graph, "language", 14, {vision, audio});
  const NodeId head = graph.add("language.head", Linear{16, false, ""}, {last}, "language");
  graph.add("language.loss", CrossEntropy{}, {head}, "language");
  return graph;
}

PlanningRequest request_of(std::int64_t batch) {
  PlanningRequest request;
  request.batch = batch;
  request.most_samples = 16;
  return request;
}

PlanSearchResult searched(const ModelGraph& graph, const Cluster& cluster, std::int64_t batch) {
  return search_plans(GraphProblem(graph, cluster, request_of(batch)), {});
}

double step_of(const PlacedPlan& placed) {
  return placed.ready ? placed.ready->predicted().step_time_s : infinite;
}

double step_of(const PlanSearchResult& result, const std::string& placement) {
  for (const PlacedPlan& each : result.placements) {
    if (each.placement == placement) return step_of(each);
  }
  ADD_FAILURE() << "no placement " << placement;
  return 0;
}

Cluster fast_and_slow() {
  return mixed_cluster({{"fast", 4, 4, 4e9}, {"slow", 4, 4, 1.6e9}}, 2e9, 1e8);
}

/// The order of the placements, the chain and the centric plan among them, is that of the plans,
/// and what is told of the best one holds for its plan alone.
TEST(BranchPlans, AreNeverWorseThanTheChainAndTheCentricPlan) {
  for (const ModelGraph& graph :
       {build_model("two-tower-nano"), build_model("co-attention-nano"), three_components()}) {
    const Cluster cluster = fast_and_slow();
    const PlanSearchResult result = searched(graph, cluster, 64);
    ASSERT_GE(result.placements.size(), 5u);
    const double best = result.plans.front().prediction->step_time_s;
    EXPECT_EQ(step_of(result.placements.front()), best);
    EXPECT_LE(best, step_of(result, "chain"));
    EXPECT_LE(best, step_of(result, "centric"));
    const TrainingTask task{graph};
    const ReadyPlan again = ready_on(task, result.plans.front().plan, cluster);
    EXPECT_EQ(again.predicted().step_time_s, best);
    std::set<std::string> names;
    for (const PlacedPlan& each : result.placements) {
      EXPECT_TRUE(names.insert(each.placement).second) << each.placement;
      EXPECT_GE(step_of(each), best) << each.placement;
    }
  }
}

/// The search for one chain of layers cannot find this: the towers share their ranks, each with
/// stages of its own, and that is faster.
TEST(BranchPlans, TowersThatShareRanksBeatTheChain) {
  const ModelGraph graph = build_model("two-tower-micro");
  const PlanSearchResult result = searched(graph, fast_and_slow(), 512);
  EXPECT_LT(result.plans.front().prediction->step_time_s, 0.99 * step_of(result, "chain"));
  const Plan& plan = result.plans.front().plan;
  EXPECT_EQ(plan.schedule, "auto");
  std::map<std::vector<RankId>, std::set<std::string>> components;
  for (const PlanStage& stage : plan.stages) {
    const std::string& node = stage.nodes.front();
    components[stage.replicas.front().ranks].insert(node.substr(0, node.find('.')));
  }
  EXPECT_TRUE(std::ranges::any_of(components, [](const auto& each) {
    return each.second.contains("vision") && each.second.contains("text");
  }));
}

// A device that has no like has no link to one.
TEST(BranchPlans, ShareADeviceThatIsAloneInItsClass) {
  const Cluster cluster = mixed_cluster({{"fast", 1, 1, 4e9}, {"slow", 1, 1, 1.6e9}}, 2e9, 1e8);
  const PlanSearchResult result = searched(three_components(), cluster, 8);
  // The loss may lie behind any end.
  EXPECT_TRUE(std::ranges::any_of(result.placements, [](const PlacedPlan& each) {
    return each.placement.starts_with("same ranks") && each.ready;
  }));
}

TEST(BranchPlans, AModelOfOneComponentHasThePlansOfTheChain) {
  const ModelGraph graph = linear_chain(8);
  const Cluster cluster = fast_and_slow();
  const GraphProblem problem(graph, cluster, request_of(32));
  EXPECT_TRUE(branch_plans(problem, {}, {}, [] { return false; }).empty());
  const PlanSearchResult result = search_plans(problem, {});
  EXPECT_TRUE(result.placements.empty());
  for (const ReadyPlan& ready : result.plans) EXPECT_NE(ready.plan.schedule, "auto");
}

/// Placements keep to a schedule that was asked for: components behind each other run as one
/// pipeline, and those in opposite directions as the two halves of a V.
TEST(BranchPlans, KeepToTheScheduleThatIsAskedFor) {
  const ModelGraph graph = three_components();
  const Cluster cluster = mixed_cluster({{"alike", 4, 4, 4e9}}, 2e9, 1e8);
  for (const auto& [schedule, placement] :
       {std::pair("1f1b", "disjoint"), std::pair("interleaved-1f1b", "same ranks")}) {
    PlanSearchOptions options;
    options.moves.schedules = {schedule};
    const PlanSearchResult result =
        search_plans(GraphProblem(graph, cluster, request_of(32)), options);
    for (const PlacedPlan& each : result.placements) {
      if (each.ready && each.placement != "chain") {
        EXPECT_EQ(each.ready->plan.schedule, schedule) << each.placement;
      }
    }
    EXPECT_LT(step_of(result, placement), infinite) << schedule;
    EXPECT_TRUE(std::ranges::any_of(result.placements, [&](const PlacedPlan& each) {
      return each.why_not == std::string(schedule) + " places stages in other ways";
    })) << schedule;
  }
}

/// No layer ends where two tensors leave a component at once; the result says that its layers are
/// those of several components.
TEST(BranchPlans, SayWhyThereAreNone) {
  ModelGraph graph;
  const NodeId first = add_component(graph, "vision", 3);
  const NodeId second = graph.add("vision.second", Linear{32, false, ""}, {first}, "vision");
  const NodeId last = add_component(graph, "language", 4, {first, second});
  const NodeId head = graph.add("language.head", Linear{16, false, ""}, {last}, "language");
  graph.add("language.loss", CrossEntropy{}, {head}, "language");
  const PlanSearchResult result = searched(graph, fast_and_slow(), 16);
  EXPECT_TRUE(std::ranges::any_of(result.placements, [](const PlacedPlan& each) {
    return each.why_not.starts_with("layers have nodes of several components");
  }));
}

/// The same problem gives the same plan, other rates another one: a placement that ignored what
/// devices cost would not change.
TEST(BranchPlans, FollowTheRates) {
  const ModelGraph graph = build_model("two-tower-micro");
  Cluster cluster = fast_and_slow();
  const Plan before = searched(graph, cluster, 128).plans.front().plan;
  EXPECT_EQ(searched(graph, cluster, 128).plans.front().plan, before);
  for (Efficiency& entry : cluster.efficiency) {
    if (entry.device_class == "fast") entry.rate = OpsPerSecond(entry.rate.value() / 8);
  }
  cluster.classes[0].rates["fp32"] = OpsPerSecond(0.5e9);
  const PlanSearchResult after = searched(graph, cluster, 128);
  EXPECT_NE(after.plans.front().plan, before);
  const ReadyPlan old = ready_on({graph}, before, cluster);
  EXPECT_LT(after.plans.front().prediction->step_time_s, old.predicted().step_time_s);
}

/// Every placement whose devices hold one micro-batch has a plan that fits: with fewer
/// micro-batches under way, and with recomputation where that is faster than to wait.
TEST(BranchPlans, KeepToTheMemory) {
  const ModelGraph graph = build_model("two-tower-micro");
  Cluster cluster = fast_and_slow();
  double most = 0;
  for (const MemoryLedger& ledger : searched(graph, cluster, 64).plans.front().memory) {
    most = std::max(most, static_cast<double>(ledger.total().value()));
  }
  PlanSearchResult result;
  for (const double part : {0.75, 0.8}) {
    for (DeviceClass& device : cluster.classes) {
      device.memory = Bytes(static_cast<std::uint64_t>(part * most));
    }
    result = searched(graph, cluster, 64);
    for (const ReadyPlan& ready : result.plans) {
      for (const MemoryLedger& ledger : ready.memory) {
        EXPECT_LE(static_cast<double>(ledger.total().value()), part * most);
      }
    }
  }
  // The loss may lie behind any end.
  for (const char* placement : {"same ranks", "opposite directions", "disjoint"}) {
    EXPECT_TRUE(std::ranges::any_of(result.placements, [&](const PlacedPlan& each) {
      return each.placement.starts_with(placement) && each.ready;
    })) << placement;
  }
}

TEST(CentricPlan, HasOneLayoutAndTheEncodersOnTheFirstStage) {
  const ModelGraph graph = three_components();
  Cluster cluster = fast_and_slow();
  // Small devices, so that the layout has several stages.
  const ReadyPlan roomy = best_centric_plan(graph, cluster, request_of(64));
  for (DeviceClass& device : cluster.classes) {
    device.memory = Bytes(roomy.memory.front().total().value() * 4 / 5);
  }
  const ReadyPlan centric = best_centric_plan(graph, cluster, request_of(64));
  const auto& stages = centric.plan.stages;
  EXPECT_GE(centric.predicted().step_time_s, roomy.predicted().step_time_s);
  for (const StageId s : stages.ids()) {
    EXPECT_EQ(stages[s].replicas.size(), stages.front().replicas.size());
    for (const std::string& node : stages[s].nodes) {
      const bool encoder = !node.starts_with("language");
      EXPECT_TRUE(s == StageId(0) || !encoder) << node;
    }
    for (const StageReplica& replica : stages[s].replicas) {
      EXPECT_EQ(replica.ranks.size(), stages.front().replicas.front().ranks.size());
      EXPECT_EQ(replica.micro_batch, stages.front().replicas.front().micro_batch);
    }
  }
}

// Every rank with a part of the text makes the rows of the whole picture, which costs it as much as
// it costs one that does nothing else. (Sums, which only ranks apart need, take no time here.)
TEST(CentricPlan, RanksThatShareTextsRepeatTheEncoder) {
  const ModelGraph graph = build_model("vlm-nano");
  const Cluster cluster = mixed_cluster({{"alike", 3, 3, 4e9}}, 1e18, 1e18, 1e-18);
  const ReadyPlan together({graph}, even_plan(graph, {.context = 2}), cluster);
  LayoutPlanRequest request;
  request.layouts = parse_layouts("vision=dp1 text=cp2@1-2");
  const ReadyPlan apart({graph}, layout_plan(graph, request), cluster);
  const auto total = [](const StageTimes::Compute& times) {
    return times.forward_s + times.input_gradient_s + times.weight_gradient_s;
  };
  const double vision = total(apart.times->compute[0][0]), text = total(apart.times->compute[1][0]);
  EXPECT_NEAR(total(together.times->compute[0][0]) / (vision + text), 1, 1e-9);
}

// Where the first stage cannot hold the encoders, it is said before any plan is made.
TEST(CentricPlan, SaysWhatTheFirstStageHolds) {
  Cluster cluster = mixed_cluster({{"alike", 2, 2, 4e9}}, 2e9, 1e8);
  cluster.classes[0].memory = Bytes(1000);
  try {
    best_centric_plan(build_model("vlm-nano"), cluster, request_of(2));
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the first stage holds"), std::string::npos);
  }
}

// The refusal tells of the candidate that lacks least, not of the first one.
TEST(CentricPlan, NamesTheNearestRefusal) {
  const ModelGraph graph = build_model("vlm-nano");
  Cluster cluster = mixed_cluster({{"alike", 2, 2, 4e9}}, 2e9, 1e8);
  const ReadyPlan roomy = best_centric_plan(graph, cluster, request_of(2));
  const auto lacking_with = [&](Bytes memory) {
    cluster.classes[0].memory = memory;
    try {
      best_centric_plan(graph, cluster, request_of(2));
    } catch (const MemoryRefusal& refusal) {
      return refusal.lacking;
    }
    return Bytes(0);
  };
  // Halve the memory until nothing fits, and add what is missing: that is enough, and a byte less
  // is not.
  Bytes memory = roomy.memory.front().total();
  while (lacking_with(memory) == Bytes(0)) memory = Bytes(memory.value() / 2);
  for (Bytes more = lacking_with(memory); more > Bytes(0); more = lacking_with(memory)) {
    memory += more;
  }
  EXPECT_GT(lacking_with(memory - Bytes(1)), Bytes(0));
}

// Of two stages on which two ranks share a text, the fast one's is larger.
TEST(ContextPlan, StagesOfAMixAreUneven) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = mixed_cluster({{"fast", 2, 2, 4e9}, {"slow", 2, 2, 1e9}}, 1e12, 1e12);
  const EvenPlanRequest even{.pipeline = 2, .context = 2, .micro_batches = 2};
  const ReadyPlan halves({graph}, even_plan(graph, even), cluster);
  const auto best = best_context_plan(graph, cluster, request_of(2));
  ASSERT_TRUE(best.has_value());
  EXPECT_LT(best->predicted().step_time_s, 0.7 * halves.predicted().step_time_s);
}

TEST(CentricPlan, NeedsSeveralComponents) {
  const ModelGraph graph = linear_chain(4);
  EXPECT_THROW(best_centric_plan(graph, fast_and_slow(), request_of(8)), UserError);
}

/// Three components on 64 devices: every placement has a plan.
TEST(BranchPlans, ThreeComponentsOn64Devices) {
  const ModelGraph graph = three_components();
  const Cluster cluster = mixed_cluster({{"fast", 32, 8, 4e9}, {"slow", 32, 8, 1.6e9}}, 2e9, 1e8);
  const PlanSearchResult result = searched(graph, cluster, 512);
  EXPECT_TRUE(result.complete);
  EXPECT_GE(result.placements.size(), 8u);
  EXPECT_LE(result.plans.front().prediction->step_time_s, step_of(result, "chain"));
  RecordProperty("search_ms", static_cast<int>(1000 * result.seconds));
}

}  // namespace
}  // namespace heteroperf
