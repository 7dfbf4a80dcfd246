// A gate decides if a change of the program may pass: is the new program (head) worse than the old
// one (base) in any metric? Exact metrics, such as counts of operations, are judged by equality.
// Statistical ones become evidence (the gain as a logarithm with its error, and a null control) and
// are judged together by a sequential rule, which keeps the chance of a false alarm below its bound
// over all metrics and all looks. The null control compares each program with itself in the very
// runs that are judged; when it alarms, the machine changed on the way and no statistical verdict
// is given.
//
// The gate's verdict is the gravest one of a metric. Where it is inconclusive, the report says what
// would settle it: more blocks, or, when no number of them would, a quieter machine.

#include "results/gate/gate_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/sequential_test.hpp"
#include "metrics/statistics.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t fewest_runs = 2;

/// The gate's verdicts on a metric by what the evidence says, in the order of ChangeVerdict.
constexpr std::array verdict_of_judgement{GateVerdict::regression, GateVerdict::improved,
                                          GateVerdict::pass, GateVerdict::inconclusive};

/// The interval of head / base by Student's t. A gain is positive for the better, so its ends swap
/// where lower is better.
Interval ratio_interval(const LogRatio& gain, const RecordMetric& metric) {
  const Interval logs = gain.interval(SequentialRule::coverage);
  if (metric.direction == MetricDirection::higher) return exponential(logs);
  return exponential({-logs.high, -logs.low});
}

/// Judges one gate: report() is called once. It adds each metric to the report, judges the
/// statistical ones together, and draws the conclusion.
class GateJudge {
 public:
  GateJudge(const RunPairs& runs, const GateRules& rules) : runs_(runs), rules_(rules) {}

  GateReport report() {
    for (const std::string& name : compared_metrics(runs_)) add(compared_metric(name));
    if (report_.metrics.empty()) {
      const std::string why = joined(report_.skipped, "; ", [](const SkippedMetric& skipped) {
        return skipped.name + ": " + skipped.reason;
      });
      throw Error(ErrorKind::environment,
                  {{"there is nothing to gate",
                    why.empty() ? "the records hold none of the metrics" : why, ""}});
    }
    judge_statistics();
    report_.order = runs_.order;
    report_.blocks = runs_.blocks();
    if (runs_.order == RunOrder::lockstep && runs_.turns.size() >= fewest_runs) {
      // Steps per turn and the share of a core are filled in by the caller who moved the programs.
      LockstepFacts& facts = report_.lockstep.emplace();
      for (const TurnPair& pair : runs_.turns) facts.quads += pair.quads;
      facts.process_spread = combine_pairs(runs_.turns).process_spread;
    }
    report_.threshold = -std::expm1(-rules_.statistics.margin);
    report_.differences = environment_differences(runs_.base.runs.front(), runs_.head.runs.front());
    conclude();
    return std::move(report_);
  }

 private:
  /// Puts a metric among the judged ones or, with a reason, among the skipped ones. A metric that
  /// no run of either side has is left out without a word.
  void add(const RecordMetric& metric) {
    const std::string name = metric.name;
    if (std::ranges::find(rules_.ignored, name) != rules_.ignored.end()) {
      return skip(name, "ignored on request");
    }
    // All statistical metrics of one pair come from the same turns, so judging each would ask one
    // question several times and cost evidence for nothing.
    if (runs_.order == RunOrder::lockstep && metric.kind == MetricKind::statistical &&
        name != compared_metrics().front()) {
      return skip(name, "throughput stands for it: both are of the same turns");
    }
    const auto base = values_of(runs_.base, metric), head = values_of(runs_.head, metric);
    if (base.empty() && head.empty()) return;
    if (base.size() < runs_.base.runs.size() || head.size() < runs_.head.runs.size()) {
      return skip(name, "some runs do not have it");
    }
    if (metric.kind == MetricKind::exact) {
      // One odd run of a program is noise, whatever the metric should be.
      if (all_equal(base) && all_equal(head)) return add_exact(metric, base.front(), head.front());
      if (!base.front().number) {
        return skip(name, "runs of one program differ in it: it is not exact here");
      }
    }
    add_statistical(metric, base, head);
  }

  /// A row without values yet.
  GatedMetric named(const RecordMetric& metric) const {
    GatedMetric gated;
    gated.metric = &metric;
    gated.unit = runs_.base.runs.front().unit_of(metric);
    return gated;
  }

  /// Runs of each side agree here, so one value stands for a side.
  void add_exact(const RecordMetric& metric, const MetricValue& base, const MetricValue& head) {
    if (metric.name == std::string("loss_fingerprint")) {
      const std::string why = why_losses_may_differ(runs_);
      if (!why.empty()) return skip(metric.name, why);
    }
    GatedMetric gated = named(metric);
    gated.base = base;
    gated.head = head;
    if (head != base) {
      const bool worse = is_worse(metric, base, head);
      gated.verdict = worse ? GateVerdict::regression : GateVerdict::improved;
    }
    gated.ratio = exact_ratio(base, head);
    report_.metrics.push_back(gated);
  }

  /// Adds a row and, where the runs carry any, its evidence. Evidence and statistical rows are in
  /// one order: judge_statistics() pairs them by place.
  void add_statistical(const RecordMetric& metric, const std::vector<MetricValue>& base,
                       const std::vector<MetricValue>& head) {
    GatedMetric gated = named(metric);
    gated.kind = MetricKind::statistical;
    gated.base = median_of(base);
    gated.head = median_of(head);
    // Within one block base and head are no samples of anything.
    const bool one_block = runs_.order != RunOrder::apart && runs_.blocks() < fewest_runs;
    const auto pairs = one_block ? std::nullopt : evidence_of(runs_, metric);
    if (pairs) {
      gated.ratio = pairs->ratio;
      // Medians of unlike moments would contradict what was measured together.
      const double paired = *gated.base.number * pairs->ratio;
      gated.head = {fmt::format("{}", paired), paired};
      if (runs_.blocks() >= rules_.statistics.fewest_blocks) {
        gated.ratio_ci95 = pairs->ratio_ci95;
        gated.t_ci95 = ratio_interval(pairs->evidence.gain, metric);
      }
      gated.controlled = pairs->controlled;
      evidence_.push_back(pairs->evidence);
    } else if (runs_.blocks() >= fewest_runs) {
      return skip(metric.name, "a value is not above 0");
    } else {
      gated.ratio = *gated.head.number / *gated.base.number;
      gated.verdict = GateVerdict::inconclusive;
      unjudged_ = true;
    }
    report_.metrics.push_back(gated);
  }

  /// All evidence is judged in one call, because the p-values are adjusted for the number of
  /// metrics. Records that are looked at once spend the whole error budget on that look.
  void judge_statistics() {
    SequentialRule rule = rules_.statistics;
    if (unjudged_ || evidence_.empty()) return;
    enough_ = runs_.blocks() >= rule.fewest_blocks;
    if (rules_.looks == GateLooks::once || !enough_) {
      rule.fewest_blocks = rule.most_blocks = runs_.blocks();
    }
    const auto judged = judge_evidence(evidence_, rule);
    std::size_t next = 0;
    for (GatedMetric& gated : report_.metrics) {
      if (gated.kind != MetricKind::statistical) continue;
      const Evidence& evidence = evidence_[next];
      gated.judgement = judged[next++];
      const auto judgement = static_cast<std::size_t>(gated.judgement.verdict);
      gated.verdict = enough_ ? verdict_of_judgement[judgement] : GateVerdict::inconclusive;
      if (enough_ && gated.verdict == GateVerdict::inconclusive) {
        gated.more_blocks = blocks_to_settle(evidence, gated.judgement, rule_of_forecast());
      }
      const double resolved = -std::expm1(-gated.judgement.resolution);
      if (enough_) report_.resolution = std::max(report_.resolution.value_or(0), resolved);
      // The gate has one control: the noisiest metric and the most suspicious one speak for all.
      NullControl& control = report_.control;
      control.measured = control.measured || gated.controlled;
      control.noise = std::max(control.noise, gated.judgement.noise);
      control.p_adjusted = std::min(control.p_adjusted, gated.judgement.control_p_adjusted);
      control.alarm = control.alarm || gated.judgement.control_alarm;
    }
  }

  /// The rule by which a forecast counts blocks. Records are looked at once, however many there
  /// will be, so a forecast for them spends nothing on earlier looks.
  SequentialRule rule_of_forecast() const {
    SequentialRule rule = rules_.statistics;
    if (rules_.looks == GateLooks::once) rule.most_blocks = rule.fewest_blocks;
    return rule;
  }

  /// The order of the verdicts is that of their weight, so the largest one of all metrics is the
  /// gate's. No noise explains that an exact metric is worse, so it decides even where the null
  /// control alarms.
  void conclude() {
    report_.verdict = GateVerdict::pass;
    bool certain = false;
    for (const GatedMetric& gated : report_.metrics) {
      report_.verdict = std::max(report_.verdict, gated.verdict);
      certain |= gated.kind == MetricKind::exact && gated.verdict == GateVerdict::regression;
    }
    if (report_.control.alarm && !certain) report_.verdict = GateVerdict::inconclusive;
    if (report_.verdict == GateVerdict::inconclusive) explain();
  }

  /// Says why there is no verdict, by the first reason that applies: the machine changed, there are
  /// too few blocks, even many more blocks would hardly settle a metric, or so many more would
  /// probably settle all.
  void explain() {
    if (report_.control.alarm) {
      report_.why_inconclusive = fmt::format(
          "the programs differ from themselves (null control, adjusted p {:.2g}): the "
          "machine changed on the way",
          report_.control.p_adjusted);
      return;
    }
    if (unjudged_ || !enough_) {
      report_.more_blocks = rules_.statistics.fewest_blocks - runs_.blocks();
      report_.why_inconclusive = fmt::format("at least {} are needed to tell noise from a change",
                                             further(*report_.more_blocks));
      return;
    }
    std::size_t most = 0;
    for (const GatedMetric& gated : report_.metrics) {
      if (gated.verdict != GateVerdict::inconclusive) continue;
      if (!gated.more_blocks) {
        report_.why_inconclusive = hopeless(gated);
        return;
      }
      most = std::max(most, *gated.more_blocks);
    }
    report_.more_blocks = most;
    const bool starts_runs = rules_.looks == GateLooks::after_each_block;
    report_.why_inconclusive =
        fmt::format("about {} would probably settle it{}", further(most),
                    starts_runs ? fmt::format(" (--max-blocks {})", runs_.blocks() + most) : "");
  }

  /// The unit of evidence in this order: "blocks", "pair", "runs of each".
  std::string unit(std::size_t count) const {
    const bool apart = runs_.order == RunOrder::apart;
    const char* noun = apart ? "run" : runs_.order == RunOrder::blocks ? "block" : "pair";
    return fmt::format("{}{}{}", noun, count == 1 ? "" : "s", apart ? " of each" : "");
  }

  /// "3 more runs of each"
  std::string further(std::size_t count) const {
    return fmt::format("{} more {}", count, unit(count));
  }

  /// A metric is beyond hope for one of two reasons: its change lies too close to the limit, or its
  /// noise is too wide for any change to be seen.
  std::string hopeless(const GatedMetric& gated) const {
    const Judgement& judged = gated.judgement;
    const std::string cause =
        rules_.statistics.can_clear(judged.limit)
            ? fmt::format("changed by {}, so close to the limit of {:.1f} %",
                          change_text(*gated.ratio), -100 * std::expm1(-judged.limit))
            : fmt::format("varies by so much without a change (noise {:.1f} %)",
                          100 * std::expm1(judged.noise));
    return fmt::format(
        "{} {} that even {} {} would hardly settle it: longer runs or a quieter "
        "machine may",
        gated.metric->name, cause, most_foreseen_blocks, unit(most_foreseen_blocks));
  }

  void skip(const std::string& name, const std::string& reason) {
    report_.skipped.push_back({name, reason});
  }

  const RunPairs& runs_;
  const GateRules& rules_;
  GateReport report_;
  std::vector<Evidence> evidence_;  ///< for the statistical metrics, in their order
  bool unjudged_ = false, enough_ = false;
};

}  // namespace

std::size_t GateReport::count(GateVerdict wanted) const {
  return static_cast<std::size_t>(std::ranges::count(metrics, wanted, &GatedMetric::verdict));
}

std::vector<std::string> certain_regressions(const GateReport& report, const RunPairs& runs,
                                             const RunPairs& others) {
  std::vector<std::string> names;
  for (const GatedMetric& gated : report.metrics) {
    if (gated.kind != MetricKind::exact || gated.verdict != GateVerdict::regression) continue;
    if (all_equal(runs.base, others.base, *gated.metric) &&
        all_equal(runs.head, others.head, *gated.metric)) {
      names.emplace_back(gated.metric->name);
    }
  }
  return names;
}

GateReport judge_gate(const RunPairs& runs, const GateRules& rules) {
  HETEROPERF_EXPECT(!runs.base.runs.empty() && !runs.head.runs.empty());
  HETEROPERF_EXPECT(rules.statistics.fewest_blocks <= rules.statistics.most_blocks);
  // Only the runs tell which operators there are.
  const std::vector<std::string> known = compared_metrics(runs);
  for (const std::string& name : rules.ignored) {
    if (std::ranges::find(known, name) == known.end()) throw unknown_name("metric", name, known);
  }
  return GateJudge(runs, rules).report();
}

}  // namespace heteroperf
