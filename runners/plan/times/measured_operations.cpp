// A probe's times become entries of an efficiency matrix.
//
// A probe runs the operations of a model as one stage on one rank, and operations that are alike
// only once. An entry has a rate, operations (or bytes) per second, because rates carry over to
// other shapes better than times. Most schedules make both gradients at once and reuse what they
// share; the joint time is split between B and W in the ratio of their separate times, so that
// their sum is what a step takes.
#include "runners/plan/times/measured_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {
namespace {

/// The whole graph as a single stage.
StagedGraph one_stage(const ModelGraph& graph) {
  Plan plan;
  PlanStage& stage = plan.stages.emplace_back();
  for (const Node& node : graph.nodes()) stage.nodes.push_back(node.name);
  stage.replicas.push_back({{RankId(0)}, 1, "", 0});
  return cut_graph(graph, plan);
}

bool alike(const FusedWork& a, const FusedWork& b) {
  return a.operation == b.operation && a.nodes == b.nodes;
}

std::string source_text(const ProbeSource& source, Precision precision, const std::string& how) {
  return fmt::format("measured {} on {}, {} {}, {}", source.date, source.machine, source.workload,
                     to_string(precision), how);
}

/// Gives the seconds of each pass. Gradients that are made at once take their joint time.
std::array<double, 3> seconds_by_pass(const OperationSeconds& seconds, const FusedWork& work) {
  const bool input = work.of(TrainingPass::input_gradient, 1).any();
  const bool weight = work.of(TrainingPass::weight_gradient, 1).any();
  // An operation with one gradient alone takes all of the backward time for it.
  if (!input || !weight) return {seconds.forward_s, seconds.backward_s, seconds.backward_s};
  const double apart = seconds.input_gradient_s + seconds.weight_gradient_s;
  const double share = apart > 0 ? seconds.backward_s / apart : 0;
  return {seconds.forward_s, seconds.input_gradient_s * share, seconds.weight_gradient_s * share};
}

bool is_time(double seconds) { return std::isfinite(seconds) && seconds > 0; }

/// A time of zero, below zero or not a number would become a rate that spoils every plan.
void refuse(const std::string& what, double seconds, const ProbeSource& source,
            ProblemList& problems) {
  problems.add(
      fmt::format("{} of {} took {} s on {}", what, source.workload, seconds, source.machine),
      "a time is positive and finite", "Probe again; a clock that stands still cannot measure.");
}

}  // namespace

ModelOperations model_operations(const ModelGraph& graph, Precision precision) {
  const StagedGraph staged = one_stage(graph);
  StageWorkTable works(graph, staged, precision);
  ModelOperations result;
  result.measured_as.resize(graph.nodes().size(), NodeId(-1));
  for (const FusedWork& work : works.of(0, 1, 0).operations) {
    const auto known = std::ranges::find_if(
        result.operations, [&](const FusedWork& fused_work) { return alike(work, fused_work); });
    result.measured_as[work.last.index()] =
        known == result.operations.end() ? work.last : known->last;
    if (known == result.operations.end()) result.operations.push_back(work);
  }
  return result;
}

void add_measured(const ModelOperations& model, std::int64_t samples, Precision precision,
                  const std::vector<OperationSeconds>& seconds, const ProbeSource& source,
                  EfficiencyMatrix& matrix) {
  HETEROPERF_EXPECT(seconds.size() == model.operations.size());
  ProblemList problems;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const FusedWork& work = model.operations[i];
    if (seconds[i].repetitions == 0) continue;
    const std::array<double, 3> by_pass = seconds_by_pass(seconds[i], work);
    const Origin origin{
        Provenance::probe,
        source_text(source, precision,
                    fmt::format("micro-batch {}, median of {}", samples, seconds[i].repetitions))};
    for (const TrainingPass pass : training_passes) {
      const auto p = static_cast<std::size_t>(pass);
      const PassWork asked = work.of(pass, static_cast<double>(samples));
      if (!asked.any()) continue;
      const std::string& name = work.pass_entries[p];
      if (!is_time(by_pass[p])) {
        refuse(fmt::format("{} {}", name, asked.shape.text()), by_pass[p], source, problems);
        continue;
      }
      matrix.add({source.device_class, name, asked.shape.text(), to_string(precision)},
                 {OpsPerSecond(asked.units() / by_pass[p]), origin});
    }
  }
  problems.throw_if_any();
}

void add_measured_optimizer(OptimizerKind optimizer, std::int64_t elements, Precision precision,
                            double seconds, const ProbeSource& source, EfficiencyMatrix& matrix) {
  const std::string name = optimizer_operation(optimizer);
  ProblemList problems;
  if (!is_time(seconds)) {
    refuse(fmt::format("{} {}", name, elements), seconds, source, problems);
  }
  problems.throw_if_any();
  const double bytes = optimizer_words * static_cast<double>(elements) *
                       static_cast<double>(bytes_per_master(precision));
  matrix.add({source.device_class, name, std::to_string(elements), to_string(precision)},
             {OpsPerSecond(bytes / seconds),
              {Provenance::probe, source_text(source, precision, "all its parameters")}});
}

}  // namespace heteroperf
