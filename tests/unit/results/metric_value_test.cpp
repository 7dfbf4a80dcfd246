#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "results/comparison/run_comparison.hpp"
#include "results/gate/gate_report.hpp"
#include "results/record/record.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::string beyond = "9007199254740993", one_more = "9007199254740994";  // 2^53 + 1, + 2

MetricValue count_of(const std::string& text) { return {text, std::stod(text)}; }

OrderedJson json_of(const char* metric, const MetricValue& value,
                    MetricKind kind = MetricKind::exact) {
  Document document{"heteroperf-comparison"};
  document.data("value", metric, Unit::none,
                metric_datum(compared_metric(metric), kind, value, ""));
  return OrderedJson::parse(json_text(document)).at("value");
}

/// Runs with an exact metric set by hand.
RunSet runs_with(const char* metric, const std::string& text, int first) {
  RunSet set;
  for (int i = first; i < first + 5; ++i) {
    set.runs.push_back(parse_run_digest(build_record(sample_of({.number = i}).journal()), "a/b"));
    set.runs.back().metrics[metric_place(metric)] = count_of(text);
  }
  return set;
}

OrderedJson metric_in(const std::string& document, const std::string& name) {
  const OrderedJson json = OrderedJson::parse(document);
  for (const OrderedJson& one : json.at("metrics")) {
    if (one.at("name") == name) return one;
  }
  throw std::runtime_error("no metric " + name);
}

TEST(MetricValue, OperationCountsAreDecimalStrings) {
  EXPECT_EQ(json_of("operations_per_step", count_of("704643072")), "704643072");
  EXPECT_EQ(json_of("executed_per_step", count_of(beyond)), beyond);
  const MetricValue middle{"704643072.5", 704643072.5};
  EXPECT_EQ(json_of("operations_per_step", middle, MetricKind::statistical), "704643072");
}

TEST(MetricValue, ExactNumbersAreThoseOfTheRecord) {
  EXPECT_EQ(json_of("peak_memory_bytes", count_of("4096")).dump(), "4096");
  EXPECT_EQ(json_of("peak_memory_bytes", count_of(beyond)), beyond);
  EXPECT_EQ(json_of("peak_memory_bytes", count_of("36893488147419103233")), "36893488147419103233");
  EXPECT_EQ(json_of("predicted_step_time_s", count_of("0.1")).dump(), "0.1");
  EXPECT_EQ(json_of("loss_fingerprint", {"00ff", {}}), "00ff");
  EXPECT_EQ(json_of("throughput", count_of("2.5"), MetricKind::statistical), 2.5);
}

TEST(MetricValue, CountsThatDoublesConfuseAreOrdered) {
  const RecordMetric& executed = compared_metric("executed_per_step");
  ASSERT_EQ(*count_of("9007199254740992").number, *count_of(beyond).number);
  EXPECT_TRUE(is_worse(executed, count_of("9007199254740992"), count_of(beyond)));
  EXPECT_FALSE(is_worse(executed, count_of(beyond), count_of("9007199254740992")));
  EXPECT_FALSE(is_worse(executed, count_of(beyond), count_of("999")));
  EXPECT_TRUE(is_worse(executed, count_of("999"), count_of(beyond)));
}

TEST(MetricValue, ALeadingZeroMakesNoCount) {
  const RecordMetric& executed = compared_metric("executed_per_step");
  EXPECT_TRUE(is_worse(executed, count_of("0"), count_of(beyond)));
  EXPECT_FALSE(is_worse(executed, count_of("0099"), count_of("98")));
  EXPECT_FALSE(is_worse(executed, count_of("00"), count_of("0")));
  EXPECT_EQ(json_of("operations_per_step", count_of("0")), "0");
  EXPECT_EQ(json_of("operations_per_step", count_of("0099")), "99");
  EXPECT_EQ(json_of("peak_memory_bytes", count_of("0")).dump(), "0");
}

TEST(MetricValue, AChangeTooSmallToShowDiffers) {
  EXPECT_EQ(exact_change_text(count_of("9007199254740992"), count_of(beyond)), "differs");
  EXPECT_EQ(exact_change_text(count_of(beyond), count_of(one_more)), "differs");
  EXPECT_EQ(exact_change_text(count_of("704643072"), count_of("704643073")), "differs");
  EXPECT_EQ(exact_change_text(count_of("1000"), count_of("1015")), "+1.5 %");
  EXPECT_EQ(exact_change_text(count_of("7"), count_of("7")), "equal");
  EXPECT_EQ(exact_change_text({"a", {}}, {"b", {}}), "differs");
}

TEST(MetricValue, GateAndCompareWriteWhatDiffers) {
  const RunPairs runs = arranged(runs_with("executed_per_step", "9007199254740992", 0),
                                 runs_with("executed_per_step", beyond, 10));
  const GateReport gated = judge_gate(runs, {});
  const RunComparison compared = compare_runs(runs, 0.02);
  const OrderedJson gate = metric_in(json_text(gate_document(gated)), "executed_per_step");
  EXPECT_EQ(gate.at("base"), "9007199254740992");
  EXPECT_EQ(gate.at("head"), beyond);
  EXPECT_EQ(gate.at("verdict"), "regression");
  EXPECT_FALSE(gate.contains("ratio"));
  const OrderedJson compare =
      metric_in(json_text(comparison_document(compared)), "executed_per_step");
  EXPECT_EQ(compare.at("a"), "9007199254740992");
  EXPECT_EQ(compare.at("b"), beyond);
  EXPECT_EQ(compare.at("changed"), true);
  const std::string row = "9007199254740992  " + beyond + "  ";
  EXPECT_NE(console_text(gate_document(gated)).find(row), std::string::npos)
      << console_text(gate_document(gated));
  EXPECT_NE(console_text(comparison_document(compared)).find("worse"), std::string::npos);
  EXPECT_TRUE(
      metric_in(json_text(gate_document(gated)), "operations_per_step").at("base").is_string());
}

}  // namespace
}  // namespace heteroperf
