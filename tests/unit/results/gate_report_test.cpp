#include "results/gate/gate_report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "metrics/error.hpp"
#include "results/record.hpp"
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

TEST(GateReport, FewerBlocksThanNeededAreInconclusive) {
  const GateReport report = judge_gate(blocks_of(3, 0.001, 0.2), rules_for(12));
  EXPECT_EQ(report.verdict, GateVerdict::inconclusive);
  EXPECT_GE(*report.more_blocks, 2u);
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
  runs.head.runs[3] = run_like({.number = 200}, 1.001);
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
  const Json json = Json::parse(gate_json_text(report));
  EXPECT_EQ(json.at("verdict"), "regression");
  EXPECT_EQ(json.at("metrics").size(), report.metrics.size());
  for (const char* key : {"name", "verdict", "ratio", "ci95", "p_adjusted", "kind"}) {
    EXPECT_TRUE(json.at("metrics").at(0).contains(key)) << key;
  }
  EXPECT_EQ(json.at("null_control").at("alarm"), false);
  const std::string markdown = gate_markdown_text(report);
  EXPECT_EQ(markdown.rfind("### REGRESSION", 0), 0u);
  EXPECT_EQ(markdown.find("<host>"), std::string::npos);
  EXPECT_NE(gate_console_text(report).find("throughput"), std::string::npos);
  const std::string junit = gate_junit_text(report);
  EXPECT_NE(junit.find("<failure"), std::string::npos);
  EXPECT_NE(junit.find("failures=\"4\""), std::string::npos) << junit;
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
