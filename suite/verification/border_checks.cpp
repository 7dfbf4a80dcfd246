// Computes again what the plans of a run send between the components of its model. The journal's
// own checks hold the bytes that the ranks counted to those that its plan lines name; here these
// follow from the plan and the graph, by the code that planned the run. A model of one component
// has no borders, and no check.
#include "suite/verification/run_checks.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "results/record/graph_book.hpp"
#include "results/record/run_folder.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/planning/border_bytes.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

std::string borders_text(const std::vector<PlannedBorder>& borders) {
  std::string text;
  for (const PlannedBorder& border : borders) {
    text += fmt::format("{}{}: {} bytes, at least {}", text.empty() ? "" : "; ", border.component,
                        border.planned_bytes, border.least_bytes);
  }
  return text;
}

/// Holds the bytes of one plan to the plan.
VerifyCheck check_plan(const std::string& name, const JsonText& text,
                       const std::vector<PlannedBorder>& said, const ModelGraph& graph,
                       const WorkloadEvent& workload) {
  VerifyCheck check{name, false, "a plan that can be made ready", "", CheckText::words};
  try {
    const auto precision = find_value<Precision>(workload.precision);
    if (!precision) throw UserError("the precision is none");
    // Which optimizer follows matters for memory and time alone.
    const ReadyPlan ready({graph, *precision, OptimizerKind::adamw},
                          parse_plan(text.text, "the plan"));
    check.expected = borders_text(planned_borders(graph, ready, *precision));
    check.actual = borders_text(said);
    check.ok = check.expected == check.actual;
  } catch (const UserError& error) {
    check.actual = error.what();
  }
  return check;
}

}  // namespace

std::vector<VerifyCheck> check_borders(const std::filesystem::path& run) {
  std::vector<VerifyCheck> checks;
  Journal journal;
  try {
    journal = read_journal(RunFiles{run}.journal().string());
  } catch (const Error&) {
    return checks;  // the check of the journal tells
  }
  const auto* workload = journal.first<WorkloadEvent>();
  const auto* plan = journal.last<PlanEvent>();
  const GraphBook graphs(journal);
  const ModelGraph* graph = graphs.of(std::nullopt);
  if (workload == nullptr || plan == nullptr || graph == nullptr) return checks;
  if (components_of(*graph).size() == 1) return checks;
  checks.push_back(check_plan("borders", plan->plan, plan->borders, *graph, *workload));
  for (const AdaptEvent* look : journal.all<AdaptEvent>()) {
    if (look->decision != AdaptDecision::new_plan) continue;
    checks.push_back(check_plan(fmt::format("borders from step {}", look->n), look->plan,
                                look->borders, *graph, *workload));
  }
  return checks;
}

}  // namespace heteroperf
