#include "tests/unit/results/rule_cases.hpp"

#include "results/record/run_summary.hpp"

namespace heteroperf {
namespace {

RankPlanEvent rank_plan(std::int32_t rank, std::uint64_t limit_bytes) {
  RankPlanEvent plan;
  plan.rank = rank;
  plan.limit_bytes = limit_bytes;
  return plan;
}

}  // namespace

std::vector<RuleCase> run_rule_cases() {
  return {
      {"run_failed", Severity::invalid,
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::failed, "rank 1 died", 6};
       },
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::complete, "rank 1 died", 0};
       }},
      {"run_partial", Severity::open,
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::partial, "interrupted", 130};
       },
       [](SampleRun& r) {
         r.last<StopEvent>() = {RunStatus::complete, "the search ended early", 0};
       }},
      {"run_partial", Severity::open, [](SampleRun& r) { r.erase_all<StopEvent>(); },
       [](SampleRun&) {}},
      {"peak_precision", Severity::open,
       [](SampleRun& r) { r.last<PeakEvent>().precision = "bf16"; },
       [](SampleRun& r) {
         r.last<PeakEvent>().precision = "bf16";
         r.last<WorkloadEvent>().precision = "bf16";
       }},
      {"seeds", Severity::open, [](SampleRun& r) { r.last<WorkloadEvent>().seeds.clear(); },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().seeds = {{"run", 0}};
       }},
      {"adapted", Severity::open,
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).adapt_every = 5; },
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).adapt_every.reset(); }},
      {"lockstep", Severity::open,
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).lockstep = true; },
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).lockstep = false; }},
      {"precision", Severity::open,
       [](SampleRun& r) {
         r.last<WorkloadEvent>().precision = r.last<PeakEvent>().precision = "fp8";
       },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().precision = r.last<PeakEvent>().precision = "bf16";
       }},
      {"above_peak", Severity::invalid,
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
       },
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.049;
       }},
      {"above_peak", Severity::invalid,  // the greater counts
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
         r.insert_before_stop(PeakEvent{ops / 1.06, "fp32"});
       },
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
         r.insert_before_stop(PeakEvent{ops / 1.049, "fp32"});
       }},
      {"above_loaded_peak", Severity::review,
       [](SampleRun& r) {
         auto& peak = r.last<PeakEvent>();
         peak.ops_per_second = rate_under_peak(r) / 1.051;
         peak.other_load = 0.101;
       },
       [](SampleRun& r) {
         auto& peak = r.last<PeakEvent>();
         peak.ops_per_second = rate_under_peak(r) / 1.051;
         peak.other_load = 0.1;
       }},
      {"above_loaded_peak", Severity::review,  // loaded for all of the run
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
         r.insert_before_stop(HostLoadEvent{400, 4, 0.41, {}, {}, {}});
       },
       [](SampleRun& r) {
         const double ops = rate_under_peak(r);
         r.last<PeakEvent>().ops_per_second = ops / 1.051;
         r.insert_before_stop(HostLoadEvent{400, 4, 0.40, {}, {}, {}});
       }},
      {"peak_not_measured", Severity::open, [](SampleRun& r) { r.erase_all<PeakEvent>(); },
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 1e15; }},
      {"peak_not_measured", Severity::open,
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 0; },
       [](SampleRun& r) { r.last<PeakEvent>().ops_per_second = 1e-300; }},
      {"late", Severity::invalid,
       [](SampleRun& r) {
         r.insert_before_stop(PacingEvent{0, 1, 1000, 5, 0.1});
         r.insert_before_stop(PacingEvent{1, 1, 1000, 16, 0.1});
       },
       [](SampleRun& r) {
         r.insert_before_stop(PacingEvent{0, 1, 1000, 5, 0.1});
         r.insert_before_stop(PacingEvent{1, 1, 1000, 15, 0.1});
       }},
      {"above_memory", Severity::invalid,
       [](SampleRun& r) { r.insert_before_stop(rank_plan(1, 1000)); },
       [](SampleRun& r) { r.insert_before_stop(rank_plan(1, 1001)); }},
      {"overhead", Severity::open,
       [](SampleRun& r) {
         r.last<OverheadEvent>().measurement_s = 0.0100001 * summarize(r.journal()).wall_s;
       },
       [](SampleRun& r) {
         r.last<OverheadEvent>().measurement_s = 0.0099999 * summarize(r.journal()).wall_s;
       }},
      {"quick", Severity::open,
       [](SampleRun& r) { std::get<StartEvent>(r.lines[0].event).quick = true; },
       [](SampleRun&) {}},
      {"precision", Severity::open,
       [](SampleRun& r) { r.last<WorkloadEvent>().precision = "fp64"; },
       [](SampleRun& r) { r.last<WorkloadEvent>().precision = "bf16"; }},
      {"emulated", Severity::open,
       [](SampleRun& r) {
         r.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, true});
       },
       [](SampleRun& r) {
         r.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, false});
       }},
      {"emulated_numerics", Severity::open,
       [](SampleRun& r) {
         r.insert_before_stop(DeviceEvent{0, "emulated:x", "fastest", true, "bf16"});
       },
       [](SampleRun&) {}},
      {"kernels", Severity::open,
       [](SampleRun& r) {
         r.insert_before_stop(DeviceEvent{0, "cpu:avx2", "avx2"});
       },
       [](SampleRun&) {}},
      {"substitution", Severity::open,
       [](SampleRun& r) {
         r.insert_before_stop(SubstitutionEvent{0, "layer_norm", 1, 8, 0.02, 1});
       },
       [](SampleRun& r) {
         r.insert_before_stop(SubstitutionEvent{0, "layer_norm", 1, 8, 0.01, 1});
       }},
  };
}

}  // namespace heteroperf
