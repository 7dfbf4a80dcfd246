#include "results/gate/gate_report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "results/record/record.hpp"
#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::json;

RunDigest run_like(const StoredRun& stored, double peak_factor = 1) {
  SampleRun run = sample_of(stored);
  for (JournalLine& line : run.lines) {
    auto* memory = std::get_if<MemoryEvent>(&line.event);
    if (memory == nullptr) continue;
    memory->peak_bytes =
        static_cast<std::uint64_t>(static_cast<double>(memory->peak_bytes) * peak_factor);
  }
  return parse_run_digest(build_record(run.journal()), "run/record.json");
}

/// Blocks whose runs vary by `spread`, the head slower by `slowdown`.
RunPairs blocks_of(int count, double spread, double slowdown, std::uint64_t seed = 1) {
  NoiseSource noise(seed);
  RunPairs runs;
  runs.order = RunOrder::blocks;
  for (int i = 0; i < 4 * count; ++i) {
    const bool head = i % 4 == 1 || i % 4 == 2;
    const double step_s = 12 * std::exp(spread * noise.normal()) * (head ? 1 + slowdown : 1);
    (head ? runs.head : runs.base).runs.push_back(run_like({.number = i, .step_s = step_s}));
  }
  return runs;
}

GateRules rules_for(std::size_t most_blocks) {
  GateRules rules;
  rules.statistics.most_blocks = most_blocks;
  rules.looks = GateLooks::after_each_block;
  return rules;
}

const GatedMetric& metric_of(const GateReport& report, const std::string& name) {
  for (const GatedMetric& gated : report.metrics) {
    if (gated.metric->name == name) return gated;
  }
  throw std::runtime_error("no metric " + name);
}

TEST(GateReport, VerdictsOfBlocks) {
  EXPECT_EQ(judge_gate(blocks_of(5, 0.003, 0), rules_for(12)).verdict, GateVerdict::pass);
  const GateReport slow = judge_gate(blocks_of(5, 0.003, 0.06), rules_for(12));
  EXPECT_EQ(slow.verdict, GateVerdict::regression);
  EXPECT_LT(*metric_of(slow, "throughput").ratio, 0.96);
  EXPECT_GT(*metric_of(slow, "step_time_s").ratio, 1.04);
  EXPECT_EQ(metric_of(slow, "peak_memory_bytes").verdict, GateVerdict::pass);
  EXPECT_EQ(judge_gate(blocks_of(5, 0.003, -0.06), rules_for(12)).verdict, GateVerdict::improved);
}

TEST(GateReport, InconclusiveSaysHowManyMoreBlocks) {
  const GateReport report = judge_gate(blocks_of(5, 0.03, 0.04, 3), rules_for(12));
  ASSERT_EQ(report.verdict, GateVerdict::inconclusive);
  ASSERT_TRUE(report.more_blocks.has_value());
  EXPECT_GT(*report.more_blocks, 0u);
  EXPECT_NE(report.why_inconclusive.find("more block"), std::string::npos);
}

TEST(GateReport, InconclusiveSaysWhyNoBlocksWouldSettleIt) {
  const GateReport loud = judge_gate(blocks_of(6, 0.5, 0, 3), rules_for(6));
  ASSERT_EQ(loud.verdict, GateVerdict::inconclusive);
  EXPECT_FALSE(loud.more_blocks.has_value());
  EXPECT_NE(loud.why_inconclusive.find("varies by so much"), std::string::npos)
      << loud.why_inconclusive;
  const GateReport near = judge_gate(blocks_of(40, 0.01, 0.0204, 3), rules_for(40));
  ASSERT_EQ(near.verdict, GateVerdict::inconclusive);
  EXPECT_NE(near.why_inconclusive.find("so close to the limit of 2.0 %"), std::string::npos)
      << near.why_inconclusive;
}

TEST(GateReport, TheBlocksItAsksForAreAnOption) {
  const GateReport commands = judge_gate(blocks_of(6, 0.03, 0.04, 3), rules_for(6));
  ASSERT_EQ(commands.verdict, GateVerdict::inconclusive);
  const std::string option = "(--max-blocks " + std::to_string(6 + *commands.more_blocks) + ")";
  EXPECT_NE(commands.why_inconclusive.find(option), std::string::npos) << commands.why_inconclusive;
  const GateReport records = judge_gate(blocks_of(6, 0.03, 0.04, 3), GateRules{});
  ASSERT_EQ(records.verdict, GateVerdict::inconclusive);
  EXPECT_EQ(records.why_inconclusive.find("--max-blocks"), std::string::npos);
}

TEST(GateReport, FewerBlocksThanNeededAreInconclusive) {
  const GateReport report = judge_gate(blocks_of(3, 0.001, 0.2), rules_for(12));
  EXPECT_EQ(report.verdict, GateVerdict::inconclusive);
  EXPECT_EQ(report.more_blocks, 2u);
  EXPECT_EQ(report.why_inconclusive,
            "at least 2 more blocks are needed to tell noise from a change");
  EXPECT_EQ(judge_gate(blocks_of(1, 0.001, 0.2), rules_for(12)).verdict, GateVerdict::inconclusive);
}

TEST(GateReport, AnAlarmOfTheNullControlTakesTheVerdict) {
  RunPairs runs = blocks_of(6, 0.002, 0.1);
  // The second run of each head is faster than its first: no program is like itself.
  for (std::size_t i = 1; i < runs.head.runs.size(); i += 2) {
    runs.head.runs[i] = run_like({.number = 100 + static_cast<int>(i), .step_s = 11});
  }
  const GateReport report = judge_gate(runs, rules_for(12));
  EXPECT_TRUE(report.control.alarm);
  EXPECT_EQ(report.verdict, GateVerdict::inconclusive);
  EXPECT_NE(report.why_inconclusive.find("themselves"), std::string::npos);
}

TEST(GateReport, ExactMetricsGateExactlyWhateverTheNoise) {
  RunPairs runs = blocks_of(5, 0.2, 0);
  for (std::size_t i = 0; i < runs.head.runs.size(); ++i) {
    runs.head.runs[i] = run_like({.number = 200 + static_cast<int>(i)}, 1.001);
  }
  const GateReport worse = judge_gate(runs, rules_for(12));
  EXPECT_EQ(worse.verdict, GateVerdict::regression);
  EXPECT_EQ(metric_of(worse, "peak_memory_bytes").verdict, GateVerdict::regression);
  runs = blocks_of(5, 0.003, 0);
  for (std::size_t i = 0; i < runs.head.runs.size(); ++i) {
    runs.head.runs[i] = run_like({.number = 200 + static_cast<int>(i), .step_s = 12.001}, 0.9);
  }
  EXPECT_EQ(metric_of(judge_gate(runs, rules_for(12)), "peak_memory_bytes").verdict,
            GateVerdict::improved);
}

TEST(GateReport, OneOddRunOfTheHeadIsNoRegression) {
  RunPairs runs = blocks_of(5, 0.002, 0);
  runs.head.runs[3] = run_like({.number = 200}, 1.001);
  const GateReport report = judge_gate(runs, rules_for(12));
  EXPECT_EQ(metric_of(report, "peak_memory_bytes").kind, MetricKind::statistical);
  EXPECT_EQ(report.verdict, GateVerdict::pass);
}

/// One run of each program, the head with another peak of memory.
RunPairs pair_of(double base_peak, double head_peak) {
  RunPairs pair;
  pair.base.runs = {run_like({.number = 900}, base_peak)};
  pair.head.runs = {run_like({.number = 901}, head_peak)};
  return pair;
}

TEST(GateReport, AnExactRegressionIsCertainWhereEachProgramAgreesWithItself) {
  RunPairs runs = blocks_of(1, 0.2, 0);
  for (RunDigest& run : runs.head.runs) run = run_like({.number = 300}, 1.01);
  const GateReport report = judge_gate(runs, rules_for(12));
  EXPECT_EQ(report.verdict, GateVerdict::regression);
  EXPECT_EQ(certain_regressions(report, runs, pair_of(1, 1.01)),
            std::vector<std::string>{"peak_memory_bytes"});
  EXPECT_TRUE(certain_regressions(report, runs, pair_of(1, 1)).empty());
  EXPECT_TRUE(certain_regressions(report, runs, pair_of(1.01, 1.01)).empty());
  runs.head.runs[0] = run_like({.number = 301});
  const GateReport mixed = judge_gate(runs, rules_for(12));
  EXPECT_EQ(mixed.verdict, GateVerdict::inconclusive);
  EXPECT_TRUE(certain_regressions(mixed, runs, pair_of(1, 1.01)).empty());
  EXPECT_TRUE(certain_regressions(judge_gate(blocks_of(5, 0.002, 0.1), rules_for(12)),
                                  blocks_of(5, 0.002, 0.1), pair_of(1, 1))
                  .empty());
}

TEST(GateReport, OneBlockGivesNoInterval) {
  const GateReport report = judge_gate(blocks_of(1, 0.001, 0.5), rules_for(12));
  EXPECT_FALSE(metric_of(report, "throughput").ratio_ci95.has_value());
  EXPECT_FALSE(report.control.measured);
  EXPECT_EQ(report.verdict, GateVerdict::inconclusive);
}

TEST(GateReport, AnExactMetricThatVariesInTheBaseIsStatistical) {
  RunPairs runs = blocks_of(5, 0.002, 0);
  runs.base.runs[2] = run_like({.number = 300}, 1.001);
  const GateReport report = judge_gate(runs, rules_for(12));
  EXPECT_EQ(metric_of(report, "peak_memory_bytes").kind, MetricKind::statistical);
  EXPECT_EQ(report.verdict, GateVerdict::pass);
}

TEST(GateReport, LossesOfOtherSeedsAreNotGated) {
  RunPairs runs = blocks_of(5, 0.002, 0);
  for (RunDigest& run : runs.head.runs) run = run_like({.number = 7, .seed = 5});
  const GateReport report = judge_gate(runs, rules_for(12));
  bool skipped = false;
  for (const SkippedMetric& one : report.skipped) skipped |= one.name == "loss_fingerprint";
  EXPECT_TRUE(skipped);
}

TEST(GateReport, MetricsCanBeIgnoredByName) {
  GateRules rules = rules_for(12);
  rules.ignored = {"throughput", "step_time_s", "ops_per_second"};
  const GateReport report = judge_gate(blocks_of(5, 0.003, 0.2), rules);
  EXPECT_EQ(report.verdict, GateVerdict::pass);
  rules.ignored = {"throughputs"};
  EXPECT_THROW(judge_gate(blocks_of(1, 0.003, 0), rules), UserError);
}

TEST(GateReport, RecordsByDateAreArrangedInBlocksWhereTheyAreBlocks) {
  const RunPairs blocks = blocks_of(5, 0.003, 0.06);
  EXPECT_EQ(arranged(blocks.base, blocks.head).order, RunOrder::blocks);
  EXPECT_EQ(arranged(blocks.base, blocks.head).blocks(), 5u);
  RunPairs apart = blocks;
  std::swap(apart.base.runs[1], apart.head.runs[1]);
  EXPECT_EQ(arranged(apart.base, apart.head).order, RunOrder::apart);
  for (RunDigest& run : apart.base.runs) run.created_utc = "2026-01-01T00:00:00Z";
  EXPECT_EQ(arranged(apart.base, apart.head).order, RunOrder::apart);
}

TEST(GateReport, RecordsApartAreTestedByWelch) {
  RunPairs runs = blocks_of(5, 0.003, 0.06);
  runs.order = RunOrder::apart;
  const GateReport report = judge_gate(runs, GateRules{});
  EXPECT_EQ(report.verdict, GateVerdict::regression);
  EXPECT_TRUE(report.control.measured);
  runs.base.runs.resize(1);
  runs.head.runs.resize(1);
  const GateReport single = judge_gate(runs, GateRules{});
  EXPECT_EQ(single.verdict, GateVerdict::inconclusive);
  EXPECT_FALSE(single.control.measured);
}

TEST(GateReport, FormsSayTheSame) {
  GateReport report = judge_gate(blocks_of(5, 0.003, 0.06), rules_for(12));
  report.differences = {{"/system/<host>|&\xff", "a\"b", "c'd"}};
  report.reproduce = "heteroperf gate --base-cmd 'a' --head-cmd 'b'";
  const Json json = Json::parse(json_text(gate_document(report)));
  EXPECT_EQ(json.at("verdict"), "regression");
  EXPECT_EQ(json.at("metrics").size(), report.metrics.size());
  for (const char* key : {"name", "verdict", "ratio", "ci95", "p_adjusted", "kind"}) {
    EXPECT_TRUE(json.at("metrics").at(0).contains(key)) << key;
  }
  EXPECT_EQ(json.at("null_control").at("alarm"), false);
  EXPECT_EQ(json.at("metrics").at(0).at("name"), "throughput");
  EXPECT_EQ(json.at("metrics").at(0).at("unit"), "image/s");
  EXPECT_EQ(json.at("metrics").at(1).at("unit"), "s");
  EXPECT_EQ(unstated_keys(gate_document(report)), std::vector<std::string>());
  const std::string markdown = gate_markdown_text(report);
  EXPECT_EQ(markdown.rfind("### REGRESSION", 0), 0u);
  EXPECT_EQ(markdown.find("<host>"), std::string::npos);
  EXPECT_NE(console_text(gate_document(report)).find("throughput"), std::string::npos);
  const std::string junit = gate_junit_text(report);
  EXPECT_NE(junit.find("<failure"), std::string::npos);
  EXPECT_NE(junit.find("failures=\"4\""), std::string::npos) << junit;
}

TEST(GateReport, ShowsTheBootstrapIntervalAndKeepsTheOneThatDecides) {
  const RunPairs runs = blocks_of(5, 0.003, 0.06);
  GateReport report = judge_gate(runs, rules_for(12));
  for (const char* name : {"throughput", "step_time_s"}) {
    const GatedMetric& gated = metric_of(report, name);
    const auto evidence = evidence_of(runs, *gated.metric);
    const double half = std::exp(evidence->evidence.gain.half_width(0.95));
    EXPECT_NEAR(gated.t_ci95->low, *gated.ratio / half, 1e-12) << name;
    EXPECT_NEAR(gated.t_ci95->high, *gated.ratio * half, 1e-12) << name;
    EXPECT_LT(gated.t_ci95->low, gated.ratio_ci95->low) << name;
    EXPECT_GT(gated.t_ci95->high, gated.ratio_ci95->high) << name;
  }
  const Json json = Json::parse(json_text(gate_document(report))).at("metrics").at(0);
  EXPECT_EQ(json.at("t_ci95").at(0), metric_of(report, json.at("name")).t_ci95->low);
  for (const auto& text : {console_text(gate_document(report)), gate_markdown_text(report)}) {
    EXPECT_NE(text.find("change [bootstrap 95 %]"), std::string::npos) << text;
  }
  RunPairs apart = runs;
  apart.order = RunOrder::apart;
  report = judge_gate(apart, GateRules{});
  EXPECT_EQ(metric_of(report, "throughput").t_ci95->low,
            metric_of(report, "throughput").ratio_ci95->low);
  EXPECT_NE(console_text(gate_document(report)).find("change [t 95 %]"), std::string::npos);
}

TEST(GateReport, MarkdownFitsAComment) {
  GateReport report = judge_gate(blocks_of(5, 0.003, 0.06), rules_for(12));
  for (int i = 0; i < 5000; ++i) {
    report.differences.push_back({"/p" + std::to_string(i), std::string(3000, 'a'), "b"});
  }
  EXPECT_LT(gate_markdown_text(report).size(), 65536u);
}

}  // namespace
}  // namespace heteroperf
