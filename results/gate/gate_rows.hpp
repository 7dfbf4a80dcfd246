#pragma once

#include <string>
#include <vector>

#include "results/gate/gate_report.hpp"

namespace heteroperf {

/// The rows that every form of a gate's report shows, in words.

/// "REGRESSION: 1 of 6 metrics | 9 blocks (base, head, head, base) | null control clean (noise 0.8
/// %)", or "ERROR: " and what went wrong.
std::string gate_headline(const GateReport& report);

/// "change [bootstrap 95 %]": what the interval of a row's change is.
std::string change_heading(const GateReport& report);

/// One metric as a row of text.
struct GateRow {
  std::string name, base, head;
  std::string change;  ///< "-6.0 % [-6.9, -5.2]"; for exact metrics "=" or what changed
  std::string p;       ///< adjusted; empty for exact metrics
  std::string verdict;
};
GateRow gate_row(const GatedMetric& gated);
/// Changed and undecided metrics before those that pass.
std::vector<const GatedMetric*> rows_that_matter(const GateReport& report);
std::vector<const GatedMetric*> rows_that_pass(const GateReport& report);

/// Everything else there is to say, a sentence each: the error's problems, why it is inconclusive,
/// notes.
std::vector<std::string> gate_remarks(const GateReport& report);

}  // namespace heteroperf
