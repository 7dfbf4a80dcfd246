#include "results/record/record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/score.hpp"
#include "results/record/run_summary.hpp"
#include "results/text/canonical_json.hpp"
#include "tests/unit/results/sample_run.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

OrderedJson record_of(const SampleRun& run) {
  return OrderedJson::parse(build_record(run.journal()));
}

void expect_no_null(const OrderedJson& json, const std::string& path) {
  EXPECT_FALSE(json.is_null()) << path;
  if (!json.is_structured()) return;
  for (const auto& item : json.items()) expect_no_null(item.value(), path + "/" + item.key());
}

TEST(Record, IsAPureFunctionOfTheJournal) {
  for (const SampleRun& run : {fixed_run(), search_run()}) {
    const std::string record = build_record(run.journal());
    EXPECT_EQ(build_record(run.journal()), record);
    EXPECT_EQ(json_indented(record, "record"), record) << "not canonical";
    expect_no_null(OrderedJson::parse(record), "");
  }
}

TEST(Record, TellsOfEveryHost) {
  SampleRun run = fixed_run();
  run.insert_before_stop(HostLoadEvent{400, 2, 0.1, {}, {}, 0.5, "b", 4, 1.5, 2.5});
  run.insert_before_stop(HostLoadEvent{390, 4, 0.25, 3, 0.5, {}, "a", 0, {}, 1.0});
  const OrderedJson load = record_of(run)["host_load"];
  EXPECT_EQ(load["seconds"], 390);  // rank 0's host
  EXPECT_EQ(load["thermal_throttled_s"], 0.5);
  ASSERT_EQ(load["hosts"].size(), 2u);
  EXPECT_EQ(load["hosts"][0],
            OrderedJson::parse(R"({"host":"a","first_rank":0,"seconds":390,"cpus":4,
      "other_cpus":0.25,"thermal_events":3,"thermal_throttled_s":0.5,"load_after":1.0})"));
  EXPECT_EQ(load["hosts"][1],
            OrderedJson::parse(R"({"host":"b","first_rank":4,"seconds":400,"cpus":2,
      "other_cpus":0.1,"quota_throttled_s":0.5,"load_before":1.5,"load_after":2.5})"));
}

TEST(Record, EmulatedDevicesHaveNoShareOfThisMachinesPeak) {
  SampleRun run = fixed_run();
  EXPECT_TRUE(record_of(run)["metrics"].contains("utilization"));
  run.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, true});
  EXPECT_FALSE(record_of(run)["metrics"].contains("utilization"));
}

TEST(Record, ThePeakIsTheGreaterOfThoseMeasured) {
  SampleRun run = fixed_run();
  run.last<PeakEvent>().memory_bytes_per_second = 2e9;
  const auto peak_of = [&] {
    return record_of(run).at("metrics").at("utilization").at("peak_ops_per_second").get<double>();
  };
  EXPECT_FALSE(record_of(run).at("metrics").at("utilization").contains("peak_products"));
  PeakEvent second{0.5e12, "fp32"};
  second.products = {"aten::mm 512x512x512"};
  second.tried = {"aten::mm", "aten::addmm"};
  second.other_load = 0.25;
  run.insert_before_stop(second);
  EXPECT_EQ(peak_of(), 1e12);
  run.last<PeakEvent>().ops_per_second = 2e12;
  EXPECT_EQ(peak_of(), 2e12);
  const OrderedJson utilization = record_of(run).at("metrics").at("utilization");
  EXPECT_EQ(utilization.at("peak_products").dump(), R"(["aten::mm 512x512x512"])");
  EXPECT_EQ(utilization.at("peak_tried").dump(), R"(["aten::mm","aten::addmm"])");
  EXPECT_EQ(utilization.at("peak_other_load"), 0.25);
  EXPECT_EQ(measured_peak(run.journal())->memory_bytes_per_second, 2e9)
      << "the first line tells it";
  run.last<PeakEvent>().ops_per_second = std::nan("");
  EXPECT_EQ(peak_of(), 1e12);
}

TEST(Record, TellsOfEveryGpuOnce) {
  SampleRun run = fixed_run();
  run.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 1, 400, {}, 4.5});
  run.insert_before_stop(GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 399, 0, 3});
  run.insert_before_stop(GpuSlowdownEvent{"b", "0000:1b:00.0", 2, 401, {}, 4.75});  // shared
  EXPECT_EQ(record_of(run)["gpu_slowdown"],
            OrderedJson::parse(
                R"([{"host":"a","gpu":"0000:1b:00.0","seconds":399,"thermal_s":0,"power_s":3},
                            {"host":"b","gpu":"0000:1b:00.0","seconds":401,"power_s":4.75}])"));
}

TEST(Record, HostLoadOfAJournalWithoutNamesHasNoHosts) {
  SampleRun run = fixed_run();
  run.insert_before_stop(HostLoadEvent{390, 4, 0.25, {}, {}, {}});
  EXPECT_EQ(record_of(run)["host_load"],
            OrderedJson::parse(R"({"seconds":390,"cpus":4,"other_cpus":0.25})"));
}

TEST(Record, HoldsTheNumbersOfAFixedRun) {
  const SampleRun run = fixed_run();
  const OrderedJson record = record_of(run);
  const Ops per_step = strict_train_ops(fixed_classifier(), 64);
  // 2 warm-up steps of 24 s, 30 steps of 12 s with 0 to 4 % of noise (12.24 s on average).
  const double window_s = 30 * 12.24;
  const OrderedJson& metrics = record.at("metrics");
  EXPECT_EQ(metrics.at("steps"), 30);
  EXPECT_EQ(metrics.at("warmup_steps"), 2);
  EXPECT_EQ(metrics.at("total_steps"), 32);
  EXPECT_NEAR(metrics.at("window_s"), window_s, 1e-6);
  EXPECT_NEAR(metrics.at("measured_s"), window_s, 1e-6);
  const double ops = (per_step * 30).to_double() / window_s;
  EXPECT_NEAR(metrics.at("ops_per_second").at("value"), ops, ops * 1e-9);
  EXPECT_EQ(metrics.at("ops_per_second").at("convention"), "strict");
  EXPECT_LE(metrics.at("ops_per_second").at("ci95").at(0), ops * (1 + 1e-9));
  EXPECT_GE(metrics.at("ops_per_second").at("ci95").at(1), ops * (1 - 1e-9));
  EXPECT_NEAR(metrics.at("throughput").at("value"), 30 * 64 / window_s, 1e-9);
  EXPECT_EQ(metrics.at("throughput").at("unit"), "image/s");
  EXPECT_NEAR(metrics.at("regulated_score").at("value"), -std::log(0.2) * ops, ops * 1e-9);
  EXPECT_EQ(metrics.at("regulated_score").at("answers"), 100);
  EXPECT_EQ(metrics.at("regulated_score").at("wrong"), 20);
  const Interval error = error_interval(20, 100);
  EXPECT_EQ(metrics.at("regulated_score").at("error_ci95"), OrderedJson({error.low, error.high}));
  EXPECT_EQ(metrics.at("quality").at("final"), true);
  EXPECT_EQ(metrics.at("quality").at("value"), 0.8);
  EXPECT_EQ(metrics.at("quality").at("met"), true);
  EXPECT_NEAR(metrics.at("step_time_s").at("median"), 12.24, 1e-9);
  // Images of this model are small: most of their windows lie in the padding.
  const auto count = [&](const char* name) {
    return std::stod(record.at("operations").at(name).get<std::string>());
  };
  const double inside = 1 - count("padding") / count("strict");
  EXPECT_GT(inside, 0.1);
  EXPECT_LT(inside, 0.9);
  EXPECT_NEAR(metrics.at("utilization").at("value"), ops * inside / 1e12, ops * 1e-18);
  EXPECT_EQ(metrics.at("peak_memory_bytes").at("per_rank"), OrderedJson({1000, 1001}));

  const OrderedJson& operations = record.at("operations");
  EXPECT_EQ(operations.at("strict"), (per_step * 32).to_string());
  EXPECT_EQ(operations.at("window_strict"), (per_step * 30).to_string());
  EXPECT_EQ(operations.at("executed"), operations.at("strict"));
  EXPECT_EQ(operations.at("recompute"), "0");
  EXPECT_EQ(operations.at("per_step").at("executed"), per_step.to_string());
  EXPECT_EQ(operations.at("evaluation_strict"),
            strict_forward_ops(fixed_classifier(), 100).to_string());
  const auto aiperf = count_graph(fixed_classifier()).conventions[Convention::aiperf].train();
  ASSERT_TRUE(aiperf.has_value());
  EXPECT_EQ(operations.at("aiperf"), (*aiperf * (64 * 32)).to_string());
}

TEST(Record, TimeByUseAddsUpToTheWindow) {
  for (const SampleRun& run : {fixed_run(), search_run()}) {
    const OrderedJson record = record_of(run);
    double sum = 0;
    for (const OrderedJson& part : record.at("time_split_s")) sum += part.get<double>();
    EXPECT_NEAR(sum, record.at("metrics").at("window_s"), 1e-6);
  }
}

TEST(Record, CarriesWhatTheContractNames) {
  const OrderedJson record = record_of(fixed_run());
  for (const char* key : {"_format", "_version", "run_id", "created_utc", "status", "validity",
                          "workload", "scale", "metrics", "operations", "time_split_s", "seeds",
                          "system", "plan", "config", "hashes", "reproduce"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  for (const char* key : {"journal_head", "config", "graph", "binary"}) {
    EXPECT_TRUE(record.at("hashes").contains(key)) << key;
  }
  for (const char* key : {"name", "size", "hash", "graph_hash", "parameters", "config"}) {
    EXPECT_TRUE(record.at("workload").contains(key)) << key;
  }
  EXPECT_EQ(record.at("seeds").at("run"), 42);
  EXPECT_EQ(record.at("config").at("run").at("steps"), 30);
  EXPECT_EQ(record.at("scale").at("emulated"), false);
  EXPECT_EQ(record.at("workload").at("parameters"),
            std::to_string(fixed_classifier().parameter_count()));
}

TEST(Record, OfTokensCountsTokensAndHasNoRegulatedScore) {
  SampleRun run = fixed_run();
  auto& workload = run.last<WorkloadEvent>();
  workload.family = WorkloadFamily::language_model;
  workload.unit = "token";
  workload.quality = QualityMeasure::loss;
  workload.quality_target = 1.0;
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->tokens = 1000;
  }
  const OrderedJson metrics = record_of(run).at("metrics");
  EXPECT_EQ(metrics.at("throughput").at("unit"), "token/s");
  EXPECT_NEAR(metrics.at("throughput").at("value"), 30 * 1000 / (30 * 12.24), 1e-6);
  EXPECT_FALSE(metrics.contains("regulated_score"));
  EXPECT_EQ(metrics.at("quality").at("value"), 0.9);
  EXPECT_FALSE(record_of(run).at("operations").contains("aiperf"));
}

TEST(Record, OfASearchStartsWhenEveryGroupIsWarm) {
  const SampleRun run = search_run();
  const Journal journal = run.journal();
  const RunSummary summary = summarize(journal);
  // Group 1 begins after group 0's first trial; its second step is the last of the warm-up.
  std::int64_t warm_ns = 0;
  for (const JournalLine& line : run.lines) {
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (step != nullptr && step->group == 1 && step->n == 1) warm_ns = step->t_end_ns;
  }
  ASSERT_TRUE(summary.window.has_value());
  EXPECT_EQ(summary.window->start_ns, warm_ns);
  EXPECT_EQ(summary.steps, 22u);
  const OrderedJson record = record_of(run);
  EXPECT_EQ(record.at("search").at("trials"), 3);
  EXPECT_EQ(record.at("search").at("diverged"), 1);
  EXPECT_EQ(record.at("search").at("unique_graphs"), 3);
  EXPECT_EQ(record.at("search").at("best").at("id"), 2);
  EXPECT_EQ(record.at("metrics").at("quality").at("value"), 0.8);
}

/// fixed_run() with a second group beside the first one, which does the same steps until it has
/// done so many: then it stops.
SampleRun two_groups(std::uint64_t steps_of_second) {
  SampleRun run = fixed_run(), both;
  run.last<ScaleEvent>().groups = 2;
  for (const JournalLine& line : run.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (phase != nullptr && (phase->phase == Phase::warmup || phase->phase == Phase::measure)) {
      both.lines.push_back({line.t_ns, PhaseEvent{phase->phase, 0}});
      both.lines.push_back({line.t_ns, PhaseEvent{phase->phase, 1}});
      continue;
    }
    if (phase != nullptr && phase->phase == Phase::finish) {
      both.lines.push_back({line.t_ns, PhaseEvent{Phase::finish, 0}});
    }
    both.lines.push_back(line);
    if (step == nullptr || step->n >= steps_of_second) continue;
    StepEvent second = *step;
    second.group = 1;
    both.lines.push_back({line.t_ns, second});
    if (step->n + 1 == steps_of_second) {
      both.lines.push_back({line.t_ns, PhaseEvent{Phase::finish, 1}});
    }
  }
  return both;
}

TEST(Record, AWindowEndsWithTheFirstGroupThatStops) {
  const double five_steps_s = 5 * 12.24;  // their noise repeats
  const OrderedJson all = record_of(two_groups(32)).at("metrics");
  EXPECT_EQ(all.at("steps"), 60);
  EXPECT_NEAR(all.at("window_s"), 6 * five_steps_s, 1e-6);
  const OrderedJson record = record_of(two_groups(22));
  const OrderedJson& metrics = record.at("metrics");
  EXPECT_EQ(metrics.at("steps"), 40);
  EXPECT_EQ(metrics.at("total_steps"), 54);
  EXPECT_NEAR(metrics.at("window_s"), 4 * five_steps_s, 1e-6);
  EXPECT_NEAR(metrics.at("measured_s"), 4 * five_steps_s, 1e-6);
  EXPECT_NEAR(metrics.at("throughput").at("value").get<double>(),
              all.at("throughput").at("value").get<double>(), 1e-9);
  const Ops per_step = strict_train_ops(fixed_classifier(), 64);
  EXPECT_EQ(record.at("operations").at("window_strict"), (per_step * 40).to_string());
  EXPECT_EQ(record.at("operations").at("strict"), (per_step * 54).to_string());
}

TEST(Record, AGroupThatStopsBeforeTheWindowBeginsDoesNotEndIt) {
  const OrderedJson metrics = record_of(two_groups(2)).at("metrics");
  EXPECT_EQ(metrics.at("steps"), 30);
  EXPECT_NEAR(metrics.at("window_s"), 30 * 12.24, 1e-6);
}

TEST(Record, AWindowWithoutItsEndEndsWithTheLastStep) {
  SampleRun killed = two_groups(32);
  std::erase_if(killed.lines, [](const JournalLine& line) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    return phase != nullptr && phase->phase > Phase::measure;
  });
  EXPECT_NEAR(record_of(killed).at("metrics").at("window_s"), 30 * 12.24, 1e-6);
}

TEST(Record, ScoresByTheFinalEvaluationAlone) {
  SampleRun run = fixed_run();
  EvalEvent lucky = run.last<EvalEvent>();
  lucky.samples = 32;
  lucky.accuracy = 0.96875;
  lucky.is_final.reset();
  const auto steps = static_cast<std::ptrdiff_t>(run.index<StepEvent>());
  run.lines.insert(run.lines.begin() + steps, {run.lines[run.index<StepEvent>()].t_ns, lucky});
  const OrderedJson plain = record_of(fixed_run()).at("metrics");
  const OrderedJson metrics = record_of(run).at("metrics");
  EXPECT_EQ(metrics.at("quality"), plain.at("quality"));
  EXPECT_EQ(metrics.at("regulated_score"), plain.at("regulated_score"));
  run.last<EvalEvent>().is_final.reset();
  const OrderedJson unscored = record_of(run).at("metrics");
  EXPECT_FALSE(unscored.contains("regulated_score"));
  EXPECT_EQ(unscored.at("quality").at("value"), 0.96875);
  EXPECT_EQ(unscored.at("quality").at("final"), false);
  EXPECT_EQ(unscored.at("quality").at("met"), false);
}

TEST(Record, AFinalEvaluationWithoutAWrongAnswerHasNoScore) {
  SampleRun run = fixed_run();
  run.last<EvalEvent>().accuracy = 1;
  const OrderedJson metrics = record_of(run).at("metrics");
  EXPECT_EQ(metrics.at("quality").at("met"), true);
  EXPECT_FALSE(metrics.contains("regulated_score"));
}

TEST(Record, TheBestTrialIsTheOneThatWasFinallyEvaluated) {
  SampleRun run = search_run();
  run.last<EvalEvent>().trial = 0;
  run.last<EvalEvent>().accuracy = 0.55;
  OrderedJson record = record_of(run);
  EXPECT_EQ(record.at("search").at("best").at("id"), 0);
  EXPECT_EQ(record.at("metrics").at("quality").at("value"), 0.55);
  run.last<EvalEvent>().is_final.reset();
  record = record_of(run);
  EXPECT_EQ(record.at("search").at("best").at("id"), 2);
  EXPECT_EQ(record.at("metrics").at("quality").at("value"), 0.8);
}

TEST(Record, SaysWhetherTheSearchsMasterHeldTheGroupsUp) {
  SampleRun run = search_run();
  const OrderedJson master = record_of(run).at("search").at("master");
  EXPECT_EQ(master.at("proposals"), 3);
  EXPECT_EQ(master.at("duplicates"), 1);
  EXPECT_EQ(master.at("answers"), 9);
  EXPECT_EQ(master.at("groups_lost"), 0);
  EXPECT_EQ(master.at("proposal_s").at("median"), 0.002);
  EXPECT_EQ(master.at("proposal_s").at("p99"), 0.004);
  EXPECT_EQ(master.at("idle_s"), 3.65);
  // From the first trial's start to the search line: 36 steps of 10 s and two evaluations, by two
  // groups.
  EXPECT_NEAR(master.at("idle_fraction").get<double>(), 3.65 / (2 * 361.0), 1e-12);
  run.erase_all<SearchEvent>();
  EXPECT_FALSE(record_of(run).at("search").contains("master"));
}

TEST(Record, RepetitionsOnDataOfOtherSeedsHaveOneHash) {
  const auto hash = [](const std::string& fingerprint, double target, const std::string& kind) {
    SampleRun run = fixed_run();
    run.last<WorkloadEvent>().data_fingerprint = fingerprint;
    run.last<WorkloadEvent>().quality_target = target;
    run.last<WorkloadEvent>().data_kind = kind;
    return OrderedJson::parse(build_record(run.journal()))
        .at("workload")
        .at("hash")
        .get<std::string>();
  };
  EXPECT_EQ(hash("seed 1", 0.5, "seed 0"), hash("seed 2", 0.6, "seed 0"));
  EXPECT_NE(hash("seed 1", 0.5, "seed 0"), hash("seed 1", 0.5, "other seed 0"));
  EXPECT_NE(hash("file 1", 0.5, ""), hash("file 2", 0.5, ""));
  EXPECT_NE(hash("file 1", 0.5, ""), hash("file 1", 0.6, ""));
}

TEST(Record, NamesItsParentAndItsCheckpoints) {
  SampleRun run = fixed_run();
  EXPECT_FALSE(record_of(run).contains("parent"));
  EXPECT_FALSE(record_of(run).contains("checkpoints"));
  auto& start = run.last<StartEvent>();
  start.parent = "20260101T101500Z-image-00000000";
  start.parent_step = 0;
  run.insert_before_stop(CheckpointEvent{10, 4096, 0.25});
  run.insert_before_stop(CheckpointEvent{20, 8192, 0.5});
  const OrderedJson record = record_of(run);
  EXPECT_EQ(record.at("parent").at("run_id"), "20260101T101500Z-image-00000000");
  EXPECT_EQ(record.at("parent").at("step"), 0);
  EXPECT_EQ(record.at("checkpoints").at("count"), 2);
  EXPECT_EQ(record.at("checkpoints").at("last_step"), 20);
  EXPECT_EQ(record.at("checkpoints").at("last_bytes"), 8192);
  EXPECT_EQ(record.at("checkpoints").at("seconds"), 0.75);
}

/// fixed_run() measured until half of the interval is within `fraction`, looked at after so many of
/// its 30 measured steps.
SampleRun looked_at(double fraction, const std::vector<std::uint64_t>& looks,
                    std::optional<std::uint32_t> fewest_blocks = {}) {
  SampleRun run = fixed_run();
  const auto workload = static_cast<std::ptrdiff_t>(run.index<WorkloadEvent>());
  run.lines.insert(run.lines.begin() + workload + 1,
                   {run.lines.front().t_ns, UntilEvent{fraction, 10, 10, 5, 0.05, fewest_blocks}});
  std::int64_t start_ns = 0;
  for (std::size_t i = 0; i < run.lines.size(); ++i) {
    const auto* step = std::get_if<StepEvent>(&run.lines[i].event);
    if (step == nullptr) continue;
    if (step->n == 2) start_ns = step->t_start_ns;
    if (std::find(looks.begin(), looks.end(), step->n - 1) == looks.end()) continue;
    const LookEvent look{start_ns, step->t_end_ns, true};
    run.lines.insert(run.lines.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     {run.lines[i].t_ns, look});
  }
  return run;
}

TEST(Record, TellsTheIntervalOfTheLastLook) {
  const Json wide = record_of(looked_at(0.05, {10, 20, 30})).at("metrics");
  const Json& until = wide.at("until");
  EXPECT_EQ(until.at("requested_fraction"), 0.05);
  EXPECT_EQ(until.at("reached"), true);
  ASSERT_EQ(until.at("looks").size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(until.at("looks")[i].at("steps"), 10 * (i + 1));
    const auto k = static_cast<double>(i + 1);
    EXPECT_DOUBLE_EQ(until.at("looks")[i].at("coverage"), 1 - 0.05 / (k * (k + 1)));
  }
  EXPECT_FALSE(until.contains("needed_s"));
  // It tells as much as was asked for.
  const Json& told = wide.at("throughput");
  const double value = told.at("value");
  EXPECT_NEAR(told.at("ci95").at(0), 0.95 * value, 1e-9 * value);
  EXPECT_NEAR(told.at("ci95").at(1), 1.05 * value, 1e-9 * value);
  EXPECT_LT(until.at("half_width_fraction").get<double>(), 0.05);
  EXPECT_EQ(until.at("looks")[2].at("half_width_fraction"), until.at("half_width_fraction"));
  const Json coarser = record_of(looked_at(0.05, {10, 20, 30}, 3)).at("metrics").at("until");
  EXPECT_GE(coarser.at("half_width_fraction"), until.at("half_width_fraction"));

  const Json narrow = record_of(looked_at(1e-3, {10, 20, 30})).at("metrics");
  EXPECT_EQ(narrow.at("until").at("reached"), false);
  EXPECT_GT(narrow.at("until").at("needed_s").get<double>(), narrow.at("measured_s").get<double>());
  // Not reached: what was seen, wider for three looks than in a run that was not looked at.
  const Json plain = record_of(fixed_run()).at("metrics");
  EXPECT_FALSE(plain.contains("until"));
  for (const char* metric : {"throughput", "ops_per_second"}) {
    const Json seen = narrow.at(metric).at("ci95"), expected = plain.at(metric).at("ci95");
    EXPECT_LT(seen.at(0), expected.at(0)) << metric;
    EXPECT_GT(seen.at(1), expected.at(1)) << metric;
  }
}

TEST(Record, EndsTheWindowWithTheLookThatReachedTheGoal) {
  SampleRun run = looked_at(0.05, {10, 30});
  // 100 s more until the phase ends, in which a checkpoint may be written.
  bool after = false;
  for (JournalLine& line : run.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    after = after || (phase != nullptr && phase->phase == Phase::finish);
    if (after) line.t_ns += 100'000'000'000;
  }
  const Json metrics = record_of(run).at("metrics");
  EXPECT_NEAR(metrics.at("window_s"), 30 * 12.24, 1e-6);
  EXPECT_NEAR(metrics.at("measured_s"), 30 * 12.24 + 100, 1e-6);
}

TEST(Record, LooksOnceMoreWhereARunWasInterrupted) {
  const Json until = record_of(looked_at(0.05, {10, 20})).at("metrics").at("until");
  ASSERT_EQ(until.at("looks").size(), 3u);
  EXPECT_EQ(until.at("looks")[2].at("steps"), 30);
}

TEST(Record, QualityNamesTheSamplesItRestsOn) {
  SampleRun run = search_run();
  EXPECT_EQ(record_of(run).at("metrics").at("quality").at("samples"), 100);
  run.erase_all<EvalEvent>();  // what a trial says alone rests on none that is known
  const OrderedJson quality = record_of(run).at("metrics").at("quality");
  EXPECT_EQ(quality.at("value"), 0.8);
  EXPECT_FALSE(quality.contains("samples"));
}

TEST(Record, CountsEvaluationAndGapsInTheWindowButNotTheirOperations) {
  SampleRun run = fixed_run();
  const double before = record_of(run).at("metrics").at("ops_per_second").at("value");
  // 100 s more until the phase ends, in which nothing was trained.
  bool after = false;
  for (JournalLine& line : run.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    after = after || (phase != nullptr && phase->phase == Phase::finish);
    if (after) line.t_ns += 100'000'000'000;
  }
  const double window_s = 30 * 12.24;
  EXPECT_NEAR(record_of(run).at("metrics").at("ops_per_second").at("value"),
              before * window_s / (window_s + 100), before * 1e-9);
}

TEST(Record, ExtrapolatesRecomputationFromTheObservedStep) {
  SampleRun run = fixed_run();
  for (JournalLine& line : run.lines) {
    if (auto* seen = std::get_if<ObservedEvent>(&line.event)) {
      seen->recompute = Ops(10);
      seen->executed = seen->strict + Ops(10);
    }
  }
  const OrderedJson operations = record_of(run).at("operations");
  EXPECT_EQ(operations.at("recompute"), "640");  // 2 ranks * 10 * 32 steps
  EXPECT_EQ(operations.at("executed"),
            (Ops::parse(operations.at("strict").get<std::string>()) + Ops(640)).to_string());
}

TEST(Record, OfAKilledRunIsPartialAndStillScored) {
  SampleRun run = fixed_run();
  run.lines.resize(run.index<PhaseEvent>() + 20);
  const OrderedJson record = record_of(run);
  EXPECT_EQ(record.at("status"), "partial");
  EXPECT_EQ(record.at("validity").at("class"), "open");
  EXPECT_TRUE(record.at("metrics").contains("ops_per_second"));
  EXPECT_FALSE(record.at("metrics").contains("quality"));
  EXPECT_FALSE(record.at("metrics").contains("peak_memory_bytes"));
}

TEST(Record, OfTheVeryFirstLinesIsReadable) {
  const SampleRun run = fixed_run();
  for (std::size_t lines = 1; lines < run.lines.size(); ++lines) {
    SampleRun cut = run;
    cut.lines.resize(lines);
    const OrderedJson record = record_of(cut);
    EXPECT_EQ(record.at("status"), "partial") << lines;
    expect_no_null(record, "");
  }
}

TEST(Record, HoldsOperationsBeyond64Bits) {
  SampleRun run = fixed_run();
  const Ops large = Ops::parse("8400000000000000000000");
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) step->ops_strict = large;
  }
  run.last<PeakEvent>().ops_per_second = 1e30;
  run.erase_all<ObservedEvent>();
  const OrderedJson record = record_of(run);
  EXPECT_EQ(record.at("operations").at("window_strict"), "252000000000000000000000");
  const double ops = 2.52e23 / (30 * 12.24);
  EXPECT_NEAR(record.at("metrics").at("ops_per_second").at("value").get<double>() / ops, 1, 1e-9);
}

}  // namespace
}  // namespace heteroperf
