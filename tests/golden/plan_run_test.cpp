// Runs of plans: what a pipeline, a plan file and a cluster of emulated devices leave behind.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "metrics/base/text_file.hpp"
#include "metrics/ops.hpp"
#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words tiny(const Words& more) {
  Words words{"run",    "llm",
              "--size", "nano",
              "--set",  "measure.peak_s=0",
              "--set",  "measure.evaluation_samples=4",
              "-q",     "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Json read_plan_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::set<std::string> rules_of(const Json& record) {
  std::set<std::string> rules;
  for (const Json& reason : record.at("validity").at("reasons")) {
    if (reason.at("severity") == "invalid") rules.insert(reason.at("rule").get<std::string>());
  }
  return rules;
}

/// Three steps of every rank, whose lanes add up to each of them; `seen` are on each trace's lanes.
void expect_lanes(const Json& trace, const std::set<std::string>& ranks,
                  const std::set<std::string>& seen) {
  std::set<std::string> names, lanes;
  std::map<std::pair<int, int>, double> steps, sums;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") names.insert(event.at("args").at("name"));
    if (event.at("ph") != "X") continue;
    const std::string lane = event.at("cat");
    if (lane.starts_with("overlapped")) continue;
    lanes.insert(lane);
    const std::pair<int, int> place{event.at("pid").get<int>(),
                                    event.at("args").at("step").get<int>()};
    (lane == "step" ? steps : sums)[place] += event.at("dur").get<double>();
  }
  EXPECT_EQ(names, ranks);
  for (const std::string& lane : seen) EXPECT_TRUE(lanes.contains(lane)) << lane;
  EXPECT_EQ(steps.size(), 3 * ranks.size());
  for (const auto& [place, step_us] : steps) {
    EXPECT_GT(step_us, 0);
    EXPECT_NEAR(sums[place], step_us, 0.01 * step_us);
  }
}

void expect_verified(const std::string& run, const ScratchFolder& folder) {
  const CommandResult check = heteroperf({"verify", run, "--json"}, folder.path());
  EXPECT_EQ(check.exit_code, 0) << check.out;
}

/// The slow class is found, the plan changes once, and what was predicted comes true.
TEST(PlanRun, ATrainingAdaptsToASlowClass) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      tiny({"--cluster", "fast2_slow6", "--plan", "auto", "--micro-batch", "1", "--micro-batches",
            "1", "--steps", "22", "--adapt", "4", "--set", "pace.slow=fast:7:1.5", "--out", "r"}),
      folder.path());
  // A host that is busy makes emulated devices late, which is no valid result.
  ASSERT_EQ(result.exit_code % 8, 0) << result.err;
  const Json record = Json::parse(result.out);
  const Json& adaptation = record.at("adaptation");
  EXPECT_EQ(adaptation.at("every_steps"), 4);
  EXPECT_EQ(adaptation.at("plan_changes"), 1);
  const Json& looks = adaptation.at("looks");
  ASSERT_EQ(looks.size(), 4u);
  std::vector<std::string> decisions;
  for (const Json& look : looks) decisions.push_back(look.at("decision"));
  EXPECT_EQ(decisions,
            (std::vector<std::string>{"as_planned", "new_plan", "as_planned", "as_planned"}));
  const Json& change = looks.at(1);
  EXPECT_EQ(change.at("n"), 10);
  EXPECT_NEAR(change.at("deviation").get<double>(), 0.5, 1e-6);
  EXPECT_GT(change.at("gain"), 0.05);
  EXPECT_EQ(change.at("outcome").at("steps"), 12);
  EXPECT_GT(change.at("moved_bytes"), 0);
  EXPECT_FALSE(record.at("prediction").contains("error_fraction"));
  EXPECT_EQ(record.at("validity").at("rankable"), false);
  bool adapted = false;
  for (const Json& reason : record.at("validity").at("reasons")) {
    adapted |= reason.at("rule") == "adapted" && reason.at("severity") == "open";
  }
  EXPECT_TRUE(adapted);
  EXPECT_EQ(record.at("operations").at("executed"), record.at("operations").at("strict"));
  expect_verified("r", folder);
  // The run's times are those of two plans.
  EXPECT_EQ(heteroperf({"plan", "llm", "--cluster", "fast2_slow6", "--learn", "r"}, folder.path())
                .exit_code,
            2);
}

/// Whoever looks at a plan that holds trains as who does not: the same losses in every bit.
TEST(PlanRun, AsPlannedAdaptingChangesNothing) {
  const ScratchFolder folder;
  const Words run = tiny({"--cluster", "fast2_slow6", "--plan", "auto", "--micro-batch", "1",
                          "--micro-batches", "1", "--steps", "18"});
  Words plain = run, adapting = run;
  plain.insert(plain.end(), {"--out", "plain"});
  adapting.insert(adapting.end(), {"--adapt", "3", "--out", "adapting"});
  const CommandResult without = heteroperf(plain, folder.path());
  const CommandResult with = heteroperf(adapting, folder.path());
  ASSERT_EQ(without.exit_code % 8, 0) << without.err;
  ASSERT_EQ(with.exit_code % 8, 0) << with.err;
  const Json kept = Json::parse(without.out), looked = Json::parse(with.out);
  EXPECT_EQ(looked.at("adaptation").at("plan_changes"), 0);
  EXPECT_EQ(looked.at("adaptation").at("looks").size(), 5u);
  EXPECT_EQ(kept.at("metrics").at("loss_fingerprint"), looked.at("metrics").at("loss_fingerprint"));
  EXPECT_FALSE(kept.contains("adaptation"));
  expect_verified("adapting", folder);
}

TEST(PlanRun, APipelineAccountsForItsRanks) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      tiny({"--ranks", "2", "--pp", "2", "--schedule", "zb-h1", "--micro-batches", "4",
            "--micro-batch", "2", "--steps", "6", "--trace", "trace.json", "--out", "r"}),
      folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  EXPECT_EQ(record.at("plan_summary"), "pp 2 x tp 1 x dp 1, zb-h1, 4 micro-batches of 2");
  EXPECT_EQ(record.at("plan"), read_plan_json(folder / "r/plan.json"));
  EXPECT_EQ(record.at("workload").at("samples_per_step"), 8);
  const Json& split = record.at("time_split_s");
  EXPECT_EQ(split.at("per_stage").size(), 2u);
  EXPECT_EQ(split.at("per_class").size(), 1u);
  ASSERT_EQ(split.at("per_rank").size(), 2u);
  EXPECT_EQ(split.at("per_rank").at(1).at("stages"), Json({1}));
  EXPECT_EQ(record.at("metrics").at("peak_memory_bytes").at("planned_per_rank").size(), 2u);
  EXPECT_FALSE(record.contains("prediction"));
  EXPECT_NE(record.at("reproduce").get<std::string>().find("--pp 2 --schedule zb-h1"),
            std::string::npos);
  const Json trace = read_plan_json(folder / "trace.json");
  EXPECT_EQ(trace.at("otherData").at("kind"), "measured");
  EXPECT_EQ(trace.at("otherData").at("run_id"), record.at("run_id"));
  EXPECT_EQ(trace.at("otherData").at("program_version"), record.at("program").at("version"));
  EXPECT_FALSE(trace.at("otherData").at("host").get<std::string>().empty());
  expect_lanes(trace, {"rank 0, cpu, stages 0", "rank 1, cpu, stages 1"},
               {"compute", "messages", "optimizer", "data"});
  expect_verified("r", folder);
  const CommandResult report = heteroperf({"report", "r", "--trace", "trace.json"}, folder.path());
  EXPECT_EQ(report.exit_code, 0) << report.err;
}

/// Trains the nano size of a model of two components for three steps, and verifies the record.
Json train_components(const char* workload, const Words& more, const std::string& out,
                      const ScratchFolder& folder) {
  Words words{"run",     workload,
              "--size",  "nano",
              "--steps", "3",
              "--set",   "measure.peak_s=0",
              "--set",   "measure.evaluation_samples=64",
              "--data",  std::string(workload) == "vlm" ? "generated" : "generated:48",
              "-q",      "--json",
              "--out",   out};
  words.insert(words.end(), more.begin(), more.end());
  const CommandResult result = heteroperf(words, folder.path());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_verified(out, folder);
  return Json::parse(result.out);
}

/// Plans twelve samples for the run's ranks of two classes, into placed.json.
void plan_components(const char* workload, const ScratchFolder& folder) {
  const CommandResult planned = heteroperf({"plan", workload, "--size", "nano", "--cluster",
                                            "fast2_slow6", "--batch", "12", "-o", "placed.json"},
                                           folder.path());
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  // The run's scenes have another size than those that the plan was made for.
  Json plan = read_plan_json(folder / "placed.json");
  plan.erase("graph_hash");
  folder.write("placed.json", plan.dump());
}

void expect_aligned(const std::string& run, const ScratchFolder& folder) {
  const CommandResult aligned = heteroperf({"align", "one", run, "--json"}, folder.path());
  EXPECT_EQ(aligned.exit_code, 0) << aligned.out;
  EXPECT_LT(Json::parse(aligned.out).at("acceptance").at("value"), 1e-5) << aligned.out;
}

/// Two components in turn on the same ranks, side by side on others, with one rank in common, as
/// the planner places them, and as one stage: the loss is over all pairs of the step, so all train
/// alike.
TEST(PlanRun, ComponentsHaveLayoutsOfTheirOwn) {
  const ScratchFolder folder;
  const auto train = [&](const Words& more, const std::string& out) {
    return train_components("two-tower", more, out, folder);
  };
  const Json one = train({"--ranks", "1", "--micro-batch", "12"}, "one");
  const Json shared =
      train({"--layout", "vision=dp3", "--layout", "text=tp1,dp3", "--micro-batch", "4"}, "shared");
  const Json apart = train({"--layout", "vision=cp3@0-2", "--layout", "text=tp2,cp2@3-6",
                            "--micro-batch", "6", "--micro-batches", "2"},
                           "apart");
  const Json partly = train({"--layout", "vision=dp2@0-1", "--layout", "text=tp2@1-2",
                             "--micro-batch", "3", "--micro-batches", "2"},
                            "partly");
  plan_components("two-tower", folder);
  EXPECT_EQ(read_plan_json(folder / "placed.json").at("schedule"), "auto");
  const Json placed = train({"--plan", "placed.json", "--cluster", "fast2_slow6", "--ranks", "8",
                             "--set", "pace.dilation=8"},
                            "placed");
  for (const Json& record : {one, shared, apart, partly, placed}) {
    EXPECT_EQ(record.at("workload").at("family"), "contrastive_model");
    EXPECT_EQ(record.at("operations").at("strict"), one.at("operations").at("strict"));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(record.at("components").at(i).at("strict"),
                one.at("components").at(i).at("strict"));
    }
  }
  for (const char* run : {"shared", "apart", "partly", "placed"}) expect_aligned(run, folder);
}

/// Samples of none to three images train alike whatever ranks have them, and every line of a
/// journal tells how many there were.
TEST(PlanRun, SamplesHaveAnyNumberOfImages) {
  const ScratchFolder folder;
  const auto train = [&](Words more, const std::string& out) {
    more.insert(more.end(), {"--images", "3"});
    return train_components("vlm", more, out, folder);
  };
  const Json one = train({"--ranks", "1", "--micro-batch", "12"}, "one");
  const Json shared =
      train({"--layout", "vision=dp2", "--layout", "text=tp2", "--micro-batch", "6"}, "shared");
  const Json apart = train({"--layout", "vision=dp2@0-1", "--layout", "text=tp2@2-3",
                            "--micro-batch", "1", "--micro-batches", "6", "--transport", "mpi"},
                           "apart");
  for (const Json& record : {one, shared, apart}) {
    EXPECT_EQ(record.at("operations").at("strict"), one.at("operations").at("strict"));
    EXPECT_EQ(record.at("operations").at("executed"), one.at("operations").at("strict"));
  }
  for (const Json& component : apart.at("components")) {
    const Json& bytes = component.at("border_bytes");
    EXPECT_GT(bytes.at("measured"), 0);
    EXPECT_LT(bytes.at("measured"), bytes.at("planned"));
  }
  for (const char* run : {"shared", "apart"}) expect_aligned(run, folder);
}

/// Streams exchange their rows within a rank, between ranks of unlike degrees, and as the planner
/// places them.
TEST(PlanRun, StreamsThatExchangeTrainAlikeWhereverTheyAre) {
  const ScratchFolder folder;
  const auto train = [&](const Words& more, const std::string& out) {
    return train_components("co-attention", more, out, folder);
  };
  const Json one = train({"--ranks", "1", "--micro-batch", "12"}, "one");
  const Json shared =
      train({"--layout", "vision=dp2", "--layout", "text=tp2", "--micro-batch", "6"}, "shared");
  const Json apart = train({"--layout", "vision=dp2@0-1", "--layout", "text=tp2@2-3",
                            "--micro-batch", "3", "--micro-batches", "2"},
                           "apart");
  // Without the names of device classes the ranks work as fast as they can.
  plan_components("co-attention", folder);
  Json plan = read_plan_json(folder / "placed.json");
  plan.erase("cluster");
  for (Json& stage : plan.at("stages")) {
    for (Json& replica : stage.at("replicas")) replica.erase("device_class");
  }
  folder.write("placed.json", plan.dump());
  const Json planned = train({"--plan", "placed.json", "--ranks", "8"}, "planned");
  for (const Json& record : {one, shared, apart, planned}) {
    EXPECT_EQ(record.at("workload").at("family"), "matching_model");
    EXPECT_EQ(record.at("operations").at("strict"), one.at("operations").at("strict"));
  }
  for (const char* run : {"shared", "apart", "planned"}) expect_aligned(run, folder);
}

/// Every component's part of a record: operations, time, and bytes that are sent as planned.
TEST(PlanRun, ComponentsAreToldApart) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf({"run",
                                           "vlm",
                                           "--size",
                                           "nano",
                                           "--layout",
                                           "vision=dp2@0-1",
                                           "--layout",
                                           "text=tp2@2-3",
                                           "--set",
                                           "plan.recompute=full",
                                           "--micro-batch",
                                           "3",
                                           "--steps",
                                           "4",
                                           "--set",
                                           "measure.warmup_steps=1",
                                           "--set",
                                           "measure.peak_s=0",
                                           "--set",
                                           "measure.evaluation_samples=8",
                                           "-q",
                                           "--json",
                                           "--out",
                                           "r"},
                                          folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  const Json& components = record.at("components");
  ASSERT_EQ(components.size(), 2u);
  Ops strict, recompute;
  double time = 0;
  for (const Json& component : components) {
    strict += Ops::parse(component.at("strict").get<std::string>());
    recompute += Ops::parse(component.at("recompute").get<std::string>());
    EXPECT_GT(component.at("time_fraction"), 0.0);
    time += component.at("time_fraction").get<double>();
    const Json& bytes = component.at("border_bytes");
    EXPECT_EQ(bytes.at("measured"), bytes.at("planned"));
    EXPECT_EQ(bytes.at("least"), bytes.at("planned"));
  }
  EXPECT_EQ(record.at("operations").at("per_step").at("strict"), strict.to_string());
  EXPECT_NEAR(time, 1, 1e-9);
  EXPECT_EQ(record.at("operations").at("recompute"), (recompute * 4).to_string());
  EXPECT_GT(recompute, Ops());
  // The text's ranks both need all of the images' places, whose gradients each go one way.
  const std::uint64_t sent = components.at(0).at("border_bytes").at("planned");
  EXPECT_EQ(components.at(1).at("border_bytes").at("planned"), sent / 2);
  EXPECT_GT(sent, 0u);
  const Json& throughput = record.at("metrics").at("throughput");
  const std::int64_t allocated = record.at("scale").at("allocated");
  EXPECT_GE(allocated, 4);
  EXPECT_EQ(throughput.at("per_active_device"), throughput.at("value").get<double>() / 4);
  EXPECT_EQ(throughput.at("per_allocated_device"),
            throughput.at("value").get<double>() / static_cast<double>(allocated));
  expect_verified("r", folder);
  const std::string shown = heteroperf({"show", "r"}, folder.path()).out;
  EXPECT_NE(shown.find("vision: "), std::string::npos) << shown;
  EXPECT_EQ(heteroperf({"report", "r"}, folder.path()).exit_code, 0);
  EXPECT_NE(read_text_file(folder / "r/report.html").find("Sent from a component to others"),
            std::string::npos);
}

TEST(PlanRun, ATraceOfAShortRunHasAllItsSteps) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      tiny({"--ranks", "2", "--steps", "3", "--trace", "trace.json", "--out", "r"}), folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_lanes(read_plan_json(folder / "trace.json"), {"rank 0, cpu", "rank 1, cpu"},
               {"compute", "sums", "optimizer", "data"});
}

TEST(PlanRun, ThePlanOfARunIsAPlanForTheNext) {
  const ScratchFolder folder;
  const auto losses = [&](const std::string& out, const Words& more) {
    Words words{"--steps", "3", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = heteroperf(tiny(words), folder.path());
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> values;
    std::ifstream journal(folder / (out + "/journal.jsonl"));
    for (std::string line; std::getline(journal, line);) {
      const Json event = Json::parse(line);
      if (event.at("kind") == "step") values.push_back(event.at("loss"));
    }
    return values;
  };
  const auto first =
      losses("a", {"--ranks", "2", "--pp", "2", "--micro-batch", "2", "--micro-batches", "2"});
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(losses("b", {"--plan", "a/plan.json"}), first);
  EXPECT_EQ(read_plan_json(folder / "a/plan.json"), read_plan_json(folder / "b/plan.json"));
}

TEST(PlanRun, EmulatedDevicesAreMarkedAndPredicted) {
  const ScratchFolder folder;
  // Long enough for a busy machine; the numbers are those of the shipped description.
  const CommandResult result =
      heteroperf(tiny({"--cluster", "laptop", "--pp", "2", "--micro-batch", "1", "--micro-batches",
                       "4", "--steps", "6", "--set", "pace.dilation=8", "--out", "r"}),
                 folder.path());
  const Json record = Json::parse(result.out);
  const std::set<std::string> broken = rules_of(record);
  EXPECT_TRUE(broken.empty() || broken == std::set<std::string>{"late"}) << result.out;
  EXPECT_EQ(record.at("scale").at("emulated"), true);
  EXPECT_EQ(record.at("scale").at("devices").at(0).at("class"), "core");
  EXPECT_EQ(record.at("validity").at("rankable"), false);
  EXPECT_EQ(record.at("pacing").at("dilation"), 8.0);
  EXPECT_GT(record.at("pacing").at("operations"), 0);
  const Json& prediction = record.at("prediction");
  EXPECT_GT(prediction.at("step_time_s"), 0.0);
  EXPECT_GT(prediction.at("measured").at("step_time_s"),
            0.99 * prediction.at("step_time_s").get<double>())
      << "nothing ends before its time";
  EXPECT_EQ(record.at("metrics").at("peak_memory_bytes").at("limit_per_rank").size(), 2u);
  expect_verified("r", folder);
  const CommandResult simulated = heteroperf({"simulate", "r/plan.json", "--json"}, folder.path());
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  const Json beside = Json::parse(simulated.out);
  EXPECT_EQ(beside.at("step_time_s"), prediction.at("step_time_s"));
  EXPECT_EQ(beside.at("measured").at("step_time_s"), prediction.at("measured").at("step_time_s"));
  // What it measured says nothing of other devices.
  for (const Words& words :
       {Words{"simulate", "r/plan.json", "--cluster", "fast2_slow6"},
        Words{"plan", "llm", "--size", "nano", "--cluster", "fast2_slow6", "--learn", "r"}}) {
    const CommandResult elsewhere = heteroperf(words, folder.path());
    EXPECT_EQ(elsewhere.exit_code, 2) << elsewhere.out;
    EXPECT_NE(elsewhere.err.find("was not made on"), std::string::npos) << elsewhere.err;
    EXPECT_NE(elsewhere.err.find("2 x core, emulated"), std::string::npos) << elsewhere.err;
  }
  const CommandResult again = heteroperf(
      tiny({"--plan", "r/plan.json", "--steps", "2", "--set", "pace.dilation=8", "--out", "again"}),
      folder.path());
  EXPECT_EQ(Json::parse(again.out).at("scale").at("emulated"), true) << "by the plan's cluster";
}

struct BadPlan {
  const char* name;
  Words words;
  const char* message;
};
class BadPlans : public ::testing::TestWithParam<BadPlan> {};

TEST_P(BadPlans, EndWithExitCodeTwoAndNoFolder) {
  const ScratchFolder folder;
  Words words = GetParam().words;
  words.insert(words.end(), {"--out", "r"});
  const CommandResult result = heteroperf(tiny(words), folder.path());
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_NE((result.out + result.err).find(GetParam().message), std::string::npos)
      << result.out << result.err;
  EXPECT_FALSE(std::ifstream(folder / "r/journal.jsonl").is_open());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPlans,
    ::testing::Values(
        BadPlan{"Degrees", {"--ranks", "3", "--pp", "2"}, "does not fit 3 ranks"},
        BadPlan{"Stages", {"--pp", "64"}, "64 stages for the model 'nano'"},
        BadPlan{"Heads", {"--ranks", "3", "--tp", "3"}, "heads"},
        BadPlan{"Ranks", {"--cluster", "fast2_slow6", "--ranks", "5"}, "5 and 8 ranks"},
        BadPlan{"Cluster", {"--cluster", "fast_slow"}, "unknown shipped cluster 'fast_slow'"},
        BadPlan{"Plan", {"--plan", "nowhere.json"}, "nowhere.json"},
        BadPlan{"Trace", {"--ranks", "1", "--trace", "nowhere/t.json"}, "cannot be written"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace heteroperf::testing
