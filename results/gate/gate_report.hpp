#pragma once

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/comparison/run_evidence.hpp"

namespace heteroperf {

/// The verdicts by weight, the gravest last; their exit codes are 0, 0, 4 and 3.
enum class GateVerdict { pass, improved, inconclusive, regression };
constexpr std::array<const char*, 4> value_names(GateVerdict) {
  return {"pass", "improved", "inconclusive", "regression"};
}

/// One metric of a gate.
struct GatedMetric {
  const RecordMetric* metric = nullptr;
  MetricKind kind = MetricKind::exact;  ///< as judged: an exact one that varies is statistical
  GateVerdict verdict = GateVerdict::pass;
  std::string unit;        ///< as the records say: "token/s"
  MetricValue base, head;  ///< medians of statistical ones
  std::optional<double> ratio;
  std::optional<Interval> ratio_ci95;  ///< for show: of blocks by bootstrap, else as t_ci95
  std::optional<Interval> t_ci95;      ///< the ratio's, by Student's t: makes the verdict
  Judgement judgement;                 ///< for statistical ones
  bool controlled = false;             ///< a statistical one had a null control
  /// Blocks that would probably settle an undecided one; absent where none would.
  std::optional<std::size_t> more_blocks;
};

/// Evidence is looked at once or after every block: who looks often must be stricter.
enum class GateLooks { once, after_each_block };

struct GateRules {
  SequentialRule statistics;
  GateLooks looks = GateLooks::once;
  std::vector<std::string> ignored;  ///< names of metrics
};

/// The null control: each program against itself, in the very runs that are judged.
struct NullControl {
  bool measured = false;
  bool alarm = false;
  double noise = 0;  ///< widest half width of its 95 % intervals, a difference of logarithms
  double p_adjusted = 1;
};

/// Facts about the pairs of a gate in lockstep.
struct LockstepFacts {
  std::size_t quads = 0;
  int steps_per_turn = 0;
  double process_spread = 0;  ///< between processes of one program, a standard deviation of logs
  double idle_cpu_share = 0;  ///< share of a core used while the other program moved
};

struct GateReport {
  /// The event that ended the gate before there was a verdict; the rest is then as judged before.
  std::optional<Error> error;
  GateVerdict verdict = GateVerdict::inconclusive;
  std::vector<GatedMetric> metrics;
  std::vector<SkippedMetric> skipped;
  NullControl control;
  RunOrder order = RunOrder::apart;
  std::size_t blocks = 0;                 ///< in lockstep, pairs of processes
  std::optional<LockstepFacts> lockstep;  ///< for that order, from 2 pairs on
  /// The smallest loss that these runs could have told from none: what its interval leaves
  /// possible, and twice the control's noise. In lockstep it is the smallest threshold that this
  /// gate could have passed; blocks may pass above their threshold where the noise alone is that
  /// wide. Absent where nothing was judged.
  std::optional<double> resolution;
  /// Blocks that would probably settle every metric; absent when settled, or when none would.
  std::optional<std::size_t> more_blocks;
  std::string why_inconclusive;  ///< a sentence
  double threshold = 0;          ///< as a fraction
  std::vector<EnvironmentDifference> differences;
  std::string reproduce;           ///< may be empty
  std::vector<std::string> notes;  ///< the machine's load, runs that lie apart

  std::size_t count(GateVerdict wanted) const;
};

/// Judges runs that are comparable. Throws Error{environment} where nothing can be compared.
GateReport judge_gate(const RunPairs& runs, const GateRules& rules);

/// Exact metrics that `report` calls worse, where all runs of the base agree and all of the head,
/// `others` included: no noise moves both programs so, and fewer blocks than noise needs will do.
std::vector<std::string> certain_regressions(const GateReport& report, const RunPairs& runs,
                                             const RunPairs& others);

/// "REGRESSION: 1 of 6 metrics | 9 blocks (base, head, head, base) | null control clean (noise 0.8
/// %)", or "ERROR: " and what went wrong.
std::string gate_headline(const GateReport& report);
/// `heteroperf-gate`.
Document gate_document(const GateReport& report);
/// A comment on a change: verdict first, changed rows, the rest folded; at most 60 KiB.
std::string gate_markdown_text(const GateReport& report);
std::string gate_junit_text(const GateReport& report);

}  // namespace heteroperf
