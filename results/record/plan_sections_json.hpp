#pragma once

#include <nlohmann/json_fwd.hpp>

#include "results/record/run_summary.hpp"

namespace heteroperf {

/// The parts of record.json that speak of a plan. Keys: results/README.md. Empty: nothing to say.

/// `time_split_s.per_rank`, `.per_stage`, `.per_class`, added to `split`.
void put_rank_times(nlohmann::ordered_json& split, const PlanSummary& plan);
/// The plan's view of memory, added to `metrics.peak_memory_bytes`.
void put_planned_memory(nlohmann::ordered_json& memory, const RunSummary& summary);
nlohmann::ordered_json prediction_section(const PlanSummary& plan);
nlohmann::ordered_json pacing_section(const PlanSummary& plan);
/// Throughputs in the unit of metrics.throughput.
nlohmann::ordered_json hetero_section(const Journal& journal, const HeteroSummary& hetero);

}  // namespace heteroperf
