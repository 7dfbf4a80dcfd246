#include "tests/unit/results/rule_cases.hpp"

namespace heteroperf {
namespace {

void set_evaluated(SampleRun& run, std::uint64_t samples, double accuracy) {
  run.last<EvalEvent>().samples = samples;
  run.last<EvalEvent>().accuracy = accuracy;
}

/// One that is not the final one.
void add_evaluation(SampleRun& run, std::uint64_t samples, double accuracy) {
  EvalEvent eval = run.last<EvalEvent>();
  eval.is_final.reset();
  eval.samples = samples;
  eval.accuracy = accuracy;
  run.insert_before_stop(eval);
}

void set_loss_floor(SampleRun& run, double floor) {
  run.last<WorkloadEvent>().quality = QualityMeasure::loss;
  run.last<WorkloadEvent>().quality_target = 0.9;
  run.last<WorkloadEvent>().loss_floor = floor;
}

}  // namespace

std::vector<RuleCase> quality_rule_cases() {
  return {
      {"quality_target", Severity::open,
       [](SampleRun& r) { r.last<EvalEvent>().accuracy = 0.4999; },
       [](SampleRun& r) { r.last<EvalEvent>().accuracy = 0.5; }},
      {"quality_target", Severity::open, [](SampleRun& r) { r.erase_all<EvalEvent>(); },
       [](SampleRun& r) {
         r.erase_all<EvalEvent>();
         r.last<WorkloadEvent>().quality_target.reset();
       }},
      {"quality_target", Severity::open,
       [](SampleRun& r) {  // lower is better
         r.last<WorkloadEvent>().quality = QualityMeasure::loss;
         r.last<WorkloadEvent>().quality_target = 0.89;
       },
       [](SampleRun& r) {
         r.last<WorkloadEvent>().quality = QualityMeasure::loss;
         r.last<WorkloadEvent>().quality_target = 0.9;
       }},
      {"below_floor", Severity::review, [](SampleRun& r) { set_evaluated(r, 10000, 0.9588); },
       [](SampleRun& r) { set_evaluated(r, 10000, 0.9586); }},  // 0.05 − 4 · √(0.05 · 0.95 / 10⁴)
      {"below_floor", Severity::review, [](SampleRun& r) { set_evaluated(r, 10000, 0.9588); },
       [](SampleRun& r) { set_evaluated(r, 256, 0.9588); }},
      {"below_floor", Severity::review,
       [](SampleRun& r) {  // a tiny evaluation beside it excuses nothing
         set_evaluated(r, 10000, 0.9588);
         add_evaluation(r, 4, 0.75);
       },
       [](SampleRun& r) {
         set_evaluated(r, 10000, 0.9586);
         add_evaluation(r, 4, 0.75);
       }},
      {"quality_target", Severity::open, [](SampleRun& r) { set_evaluated(r, 31, 0.9); },
       [](SampleRun& r) { set_evaluated(r, 32, 0.9); }},
      {"quality_target", Severity::open,
       [](SampleRun& r) {  // the best of the others counts nothing
         set_evaluated(r, 100, 0.49);
         add_evaluation(r, 100, 1.0);
       },
       [](SampleRun& r) {
         set_evaluated(r, 100, 0.5);
         add_evaluation(r, 100, 0.0);
       }},
      {"quality_target", Severity::open, [](SampleRun& r) { r.last<EvalEvent>().is_final.reset(); },
       [](SampleRun& r) { r.last<EvalEvent>().is_final = true; }},
      {"below_floor", Severity::review, [](SampleRun& r) { set_loss_floor(r, 0.9185); },
       [](SampleRun& r) { set_loss_floor(r, 0.9183); }},  // the loss is 0.9
  };
}

}  // namespace heteroperf
