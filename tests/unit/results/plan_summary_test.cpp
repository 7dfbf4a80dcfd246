#include "results/record/plan_summary.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "metrics/base/text_file.hpp"
#include "results/record/component_summary.hpp"
#include "results/record/record.hpp"
#include "results/record/verify.hpp"
#include "results/text/sha256.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr double wall_s = 30 * 12.24;
constexpr double samples_per_modelled_second = 64 / 6.12;  // samples per modelled second

OrderedJson plan_record_of(const SampleRun& run) {
  return OrderedJson::parse(build_record(run.journal()));
}

TEST(PlanRecord, PredictedBesideMeasuredOnModelledTime) {
  const OrderedJson prediction = plan_record_of(planned_run()).at("prediction");
  EXPECT_EQ(prediction.at("step_time_s"), 6.0);
  EXPECT_NEAR(prediction.at("error_fraction"), 0.02, 1e-12);
  EXPECT_EQ(prediction.at("bubble_rate"), 0.375);
  EXPECT_EQ(prediction.at("pipeline_bubble_rate"), 0.3);
  EXPECT_NEAR(prediction.at("measured").at("step_time_s"), 6.12, 1e-9);
  EXPECT_NEAR(prediction.at("measured").at("samples_per_s"), samples_per_modelled_second, 1e-9);
  EXPECT_NEAR(prediction.at("measured").at("bubble_rate"), 0.375, 1e-12);
}

TEST(PlanRecord, RealDevicesHaveRealTime) {
  SampleRun run = planned_run();
  run.erase_all<PacingEvent>();
  const OrderedJson record = plan_record_of(run);
  EXPECT_FALSE(record.contains("pacing"));
  EXPECT_NEAR(record.at("prediction").at("measured").at("step_time_s"), 12.24, 1e-9);
  EXPECT_NEAR(record.at("prediction").at("measured").at("samples_per_s"),
              record.at("metrics").at("throughput").at("value"), 1e-9);
}

TEST(PlanRecord, PacingAddsUpTheRanks) {
  const OrderedJson pacing = plan_record_of(planned_run()).at("pacing");
  EXPECT_EQ(pacing.at("dilation"), 2.0);
  EXPECT_EQ(pacing.at("operations"), 1000);
  EXPECT_EQ(pacing.at("late"), 1);
  EXPECT_EQ(pacing.at("late_fraction"), 0.001);
}

double parts_of(const OrderedJson& entry) {
  double sum = 0;
  for (const char* part : {"compute", "communication_exposed", "bubble", "data", "other"}) {
    sum += entry.at(part).get<double>();
  }
  return sum;
}

TEST(PlanRecord, TimeOfRanksStagesAndClassesAddsUpToTheirWall) {
  const OrderedJson split = plan_record_of(planned_run()).at("time_split_s");
  for (const char* list : {"per_rank", "per_stage", "per_class"}) {
    ASSERT_EQ(split.at(list).size(), 2u) << list;
    for (const OrderedJson& entry : split.at(list)) {
      EXPECT_NEAR(parts_of(entry), entry.at("wall"), 1e-9) << list;
      EXPECT_NEAR(entry.at("wall"), wall_s, 1e-9) << list;
    }
  }
  const OrderedJson& slow = split.at("per_class").at(1);
  EXPECT_EQ(slow.at("device_class"), "slow");
  EXPECT_NEAR(slow.at("bubble"), 0.375 * wall_s, 1e-9);
  EXPECT_EQ(split.at("per_rank").at(1).at("stages"), OrderedJson({1}));
}

TEST(PlanRecord, GroupsHaveMeanSecondsAndAllOperations) {
  SampleRun run = planned_run();
  for (JournalLine& line : run.lines) {
    if (auto* plan = std::get_if<RankPlanEvent>(&line.event)) {
      plan->position = 0;
      plan->stages = {0, 1};
      plan->device_class = "fast";
    }
  }
  const OrderedJson split = plan_record_of(run).at("time_split_s");
  ASSERT_EQ(split.at("per_stage").size(), 1u);
  const OrderedJson& both = split.at("per_stage").at(0);
  EXPECT_EQ(both.at("ranks"), 2);
  EXPECT_NEAR(both.at("compute"), 0.625 * wall_s, 1e-9);
  const Ops per_step = run.last<StepEvent>().ops_strict;
  EXPECT_EQ(both.at("strict"), (per_step * 30).to_string());
  EXPECT_NEAR(both.at("ops_per_second"), (per_step * 30).to_double() / wall_s, 1e-3);
}

TEST(PlanRecord, MemoryStandsBesideTheLedgerAndTheLimit) {
  const OrderedJson memory = plan_record_of(planned_run()).at("metrics").at("peak_memory_bytes");
  EXPECT_EQ(memory.at("planned_per_rank"), OrderedJson({1000, 1000}));
  EXPECT_EQ(memory.at("limit_per_rank"), OrderedJson({1001, 1001}));
  EXPECT_EQ(memory.at("ledger_per_rank").at(0).at("total"), 1000);
  EXPECT_NEAR(memory.at("worst_error_fraction"), 0.001, 1e-12);  // 1001 on rank 1
}

TEST(PlanRecord, MixAgainstItsClassesPlannedAndMeasured) {
  const OrderedJson hetero = plan_record_of(planned_run()).at("metrics").at("hetero");
  EXPECT_NEAR(hetero.at("hsr"), samples_per_modelled_second / 10.5, 1e-9);
  EXPECT_NEAR(hetero.at("gain"), samples_per_modelled_second / 7, 1e-9);
  EXPECT_EQ(hetero.at("best_single"), 7.0);
  EXPECT_EQ(hetero.at("best_class"), "fast");
  EXPECT_EQ(hetero.at("ideal_sum"), 10.5);
  EXPECT_EQ(hetero.at("unit"), "image/s");
  EXPECT_NEAR(hetero.at("planned").at("hsr"), 64 / 6.0 / 12, 1e-12);
  ASSERT_EQ(hetero.at("baselines").size(), 2u);
  EXPECT_EQ(hetero.at("baselines").at(1).at("throughput"), 3.5);
  EXPECT_EQ(hetero.at("baselines").at(1).at("planned_throughput"), 4.0);
}

TEST(PlanRecord, ThroughputOfTokensCountsTokens) {
  SampleRun run = planned_run();
  run.last<WorkloadEvent>().unit = "token";
  run.last<WorkloadEvent>().units_per_sample = 32;
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->tokens = 32 * step->samples;
  }
  const OrderedJson hetero = plan_record_of(run).at("metrics").at("hetero");
  EXPECT_EQ(hetero.at("ideal_sum"), 32 * 10.5);
  EXPECT_NEAR(hetero.at("hsr"), samples_per_modelled_second / 10.5, 1e-9);
}

TEST(PlanRecord, AnInvalidRunHasNoRatio) {
  SampleRun run = planned_run();
  run.last<StopEvent>() = {RunStatus::failed, "rank 1 died", 6};
  EXPECT_FALSE(plan_record_of(run).at("metrics").contains("hetero"));
}

TEST(HeteroFigures, NeedEveryNumber) {
  EXPECT_FALSE(hetero_figures(std::nullopt, {{"a", 1.0}}));
  EXPECT_FALSE(hetero_figures(3.0, {}));
  EXPECT_FALSE(hetero_figures(3.0, {{"a", 1.0}, {"b", std::nullopt}}));
  EXPECT_FALSE(hetero_figures(3.0, {{"a", 1.0}, {"b", 0.0}}));
  const auto figures = hetero_figures(3.0, {{"a", 1.0}, {"b", 3.0}, {"c", 2.0}});
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->hsr(), 0.5);
  EXPECT_EQ(figures->gain(), 1.0);
  EXPECT_EQ(figures->best_class, "b");
}

std::vector<std::string> failed_checks(const std::filesystem::path& folder) {
  std::vector<std::string> failed;
  for (const VerifyCheck& check : verify(folder).checks) {
    if (!check.ok) failed.push_back(check.name);
  }
  return failed;
}

TEST(PlanRecord, VerifyCoversTheRunsOfTheClasses) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"}, alone{files.folder / "baseline-slow"};
  planned_run().write_finished(files);
  EXPECT_EQ(failed_checks(files.folder), std::vector<std::string>{});

  write_file_atomically(alone.record(), read_text_file(alone.record()) + "\n");
  EXPECT_EQ(failed_checks(files.folder),
            (std::vector<std::string>{"baselines", "baseline-slow/record_bytes"}));
}

/// Half of what a class does alone would make twice the mix of it.
TEST(PlanRecord, VerifyHoldsTheNumbersOfTheClassesToTheirRuns) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"};
  planned_run().write_finished(files);
  SampleRun forged{read_journal(files.journal().string()).lines};
  *forged.last<BaselineEvent>().samples_per_s /= 2;
  write_file_atomically(files.journal(), forged.text());
  finish_run(files);
  EXPECT_EQ(failed_checks(files.folder), std::vector<std::string>{"baselines"});
}

TEST(PlanRecord, TheMixsLossesAreHeldToThoseOfAClassAlone) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"};
  SampleRun run = planned_run();
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->loss *= 1.25;
  }
  run.write_finished(files);
  SampleRun forged{read_journal(files.journal().string()).lines};
  std::optional<double>& apart = forged.last<BaselineEvent>().loss_difference;
  ASSERT_TRUE(apart);
  EXPECT_DOUBLE_EQ(*apart, 0.25);
  EXPECT_EQ(failed_checks(files.folder), std::vector<std::string>{});
  *apart = 0.01;
  write_file_atomically(files.journal(), forged.text());
  finish_run(files);
  EXPECT_EQ(failed_checks(files.folder), std::vector<std::string>{"baselines"});
}

TEST(PlanRecord, AClassAloneIsNamedOnce) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"};
  planned_run().write_finished(files);
  SampleRun forged{read_journal(files.journal().string()).lines};
  const auto second = std::find_if(
      forged.lines.begin(), forged.lines.end(),
      [](const JournalLine& line) { return std::holds_alternative<BaselineEvent>(line.event); });
  forged.lines.insert(second, 3, *second);
  write_file_atomically(files.journal(), forged.text());
  finish_run(files);
  const std::vector<VerifyCheck> checks = verify(files.folder).checks;
  const auto verified = [&](const std::string& name) {
    return std::count_if(checks.begin(), checks.end(),
                         [&](const VerifyCheck& check) { return check.name == name; });
  };
  EXPECT_EQ(verified("baseline-fast/journal_chain"), 1);
  const std::vector<std::string> failed = failed_checks(files.folder);
  EXPECT_TRUE(std::count(failed.begin(), failed.end(), "baselines"));
}

TEST(PlanRecord, VerifyFollowsNoNameOutOfTheRun) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"}, other{scratch.path() / "other"};
  fixed_run().write_finished(other);
  SampleRun run = planned_run();
  run.last<BaselineEvent>().record_sha256 = sha256_file_hex(other.record().string());
  for (const char* name : {"", ".", "..", "../other", "baseline/of", "linked"}) {
    run.last<BaselineEvent>().folder = name;
    std::filesystem::remove_all(files.folder);
    run.write_finished(files);
    std::filesystem::create_directory_symlink(other.folder, files.folder / "linked");
    EXPECT_EQ(failed_checks(files.folder), (std::vector<std::string>{"baselines", "recomputation"}))
        << name;
  }
}

TEST(PlanRecord, VerifyGoesNoDeeperThanTheClassesAlone) {
  const TemporaryFolder scratch;
  const RunFiles files{scratch.path() / "mix"}, alone{files.folder / "baseline-slow"};
  SampleRun run = planned_run();
  run.last<BaselineEvent>().folder = "baseline-slow";
  run.last<BaselineEvent>().record_sha256 = std::string(64, '0');
  run.write_finished(alone);
  run.last<BaselineEvent>().record_sha256 = sha256_file_hex(alone.record().string());
  run.write_finished(files);
  EXPECT_EQ(failed_checks(files.folder),
            (std::vector<std::string>{"baselines", "baseline-slow/baselines",
                                      "baseline-slow/recomputation"}));
}

AdaptEvent bordered_look(std::uint64_t n, AdaptDecision decision,
                         std::vector<PlannedBorder> borders) {
  AdaptEvent event;
  event.n = n;
  event.decision = decision;
  event.borders = std::move(borders);
  return event;
}

TEST(PlannedBorder, IsThatOfThePlansThatWereInForce) {
  Journal journal;
  PlanEvent plan;
  plan.borders = {{"vision", 10, 8}, {"text", 5, 5}};
  journal.lines.push_back({0, plan});
  journal.lines.push_back({1, bordered_look(5, AdaptDecision::no_gain, {})});
  journal.lines.push_back(
      {2, bordered_look(6, AdaptDecision::new_plan, {{"vision", 4, 4}, {"text", 0, 0}})});
  const auto sent = [&](const char* component, std::uint64_t first, std::uint64_t steps) {
    const BorderSummary border = planned_border(journal, component, first, steps);
    return std::pair(border.planned, border.least);
  };
  EXPECT_EQ(sent("vision", 0, 6), std::pair(std::uint64_t{60}, std::uint64_t{48}));
  EXPECT_EQ(sent("vision", 4, 5),
            std::pair(std::uint64_t{2 * 10 + 3 * 4}, std::uint64_t{2 * 8 + 3 * 4}));
  EXPECT_EQ(sent("vision", 9, 2), std::pair(std::uint64_t{8}, std::uint64_t{8}));
  EXPECT_EQ(sent("text", 4, 5), std::pair(std::uint64_t{10}, std::uint64_t{10}));
  EXPECT_EQ(sent("audio", 4, 5), std::pair(std::uint64_t{0}, std::uint64_t{0}));
}

TEST(Components, OfAModelOfOneAreNotToldApart) {
  Journal journal;
  journal.lines.push_back({0, PlanEvent{{"{}"}, "", {}}});
  EXPECT_TRUE(summarize_components(journal).empty());
}

}  // namespace
}  // namespace heteroperf
