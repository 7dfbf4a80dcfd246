#pragma once

#include "metrics/base/strict_json.hpp"
#include "results/record/run_summary.hpp"

namespace heteroperf {

/// The parts of record.json that speak of a plan. Keys: results/README.md. Empty: nothing to say.

/// `time_split_s.per_rank`, `.per_stage`, `.per_class`, added to `split`.
void put_rank_times(Json& split, const PlanSummary& plan);
/// The plan's view of memory, added to `metrics.peak_memory_bytes`.
void put_planned_memory(Json& memory, const RunSummary& summary);
Json prediction_section(const PlanSummary& plan);
/// Empty where the training keeps its plan.
Json adaptation_section(const Journal& journal, const PlanSummary& plan);
/// One entry per component; empty where the model has but one.
Json components_section(const std::vector<ComponentSummary>& components);
Json pacing_section(const PlanSummary& plan);
/// Throughputs in the unit of metrics.throughput.
Json hetero_section(const Journal& journal, const HeteroSummary& hetero);

}  // namespace heteroperf
