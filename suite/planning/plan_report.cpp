// The text that `plan` prints: the stages with their replicas and their fullest rank, then a line
// for each fact, with its name in a column of its own. The order is that of the questions of a
// reader: how fast, limited by what, how far from the best possible, how sure are the rates,
// compared with what. Lines without content are left out.
//
// HSR is the throughput of the mixed machine over the sum of its
// classes alone; 1 means that mixing loses nothing.
#include "suite/planning/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/score.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// "12 x a100 tp4 x3, 5 x v100 x2": replicas, class, degree, samples each.
std::string replicas_text(const PlanStage& stage) {
  const auto& replicas = stage.replicas;
  std::string text;
  for (ReplicaId i; replicas.contains(i);) {
    const StageReplica& first = replicas[i];
    ReplicaId end = i;
    // Equal neighbours are told once, with their number.
    while (replicas.contains(end) && replicas[end].micro_batch == first.micro_batch &&
           replicas[end].device_class == first.device_class &&
           replicas[end].ranks.size() == first.ranks.size()) {
      ++end;
    }
    text += fmt::format("{}{} x {}{}: {} each", i == 0 ? "" : ", ", end - i, first.device_class,
                        first.ranks.size() > 1 ? fmt::format(" tp{}", first.ranks.size()) : "",
                        first.micro_batch);
    i = end;
  }
  return text;
}

/// The rank of a stage with the least room.
const PlanCertificate::RankMemory& fullest(const PlanReport& report, const PlanStage& stage) {
  const PlanCertificate::RankMemory* result = nullptr;
  const auto share = [](const PlanCertificate::RankMemory& memory) {
    const double limit = static_cast<double>(memory.limit.value());
    const double bytes = static_cast<double>(memory.ledger.total().value());
    // Without limits the one with the most bytes is the fullest; any rank with a limit comes before
    // it.
    return limit > 0 ? bytes / limit : bytes * 1e-18;
  };
  for (const StageReplica& replica : stage.replicas) {
    for (const RankId rank : replica.ranks) {
      const auto& memory = report.certificate.memory[rank.index()];
      if (result == nullptr || share(memory) > share(*result)) result = &memory;
    }
  }
  return *result;
}

/// One stage: its nodes, recomputation, the fullest of its ranks, and its replicas.
std::string stage_row(const PlanReport& report, StageId s) {
  const PlanStage& stage = report.plan.stages[s];
  const PlanCertificate::RankMemory& memory = fullest(report, stage);
  std::string room = rounded_byte_size(memory.ledger.total());
  if (memory.limit > Bytes(0)) room += " of " + rounded_byte_size(memory.limit);
  return fmt::format("{:>5}  {:>5}  {:<10} {:<20} {}\n", s.value(), stage.nodes.size(),
                     to_string(stage.recomputation), room, replicas_text(stage));
}

std::string summary_of(const Plan& plan) {
  return fmt::format("{} stage{}, {} micro-batches of {}, {} ranks, {}", plan.stages.size(),
                     plan.stages.size() == 1 ? "" : "s", plan.micro_batches,
                     plan.micro_batch_samples(), plan.ranks(), plan.schedule);
}

/// A class that cannot run the workload alone is listed with the reason and adds nothing to the
/// sum.
std::string comparison_text(const PlanReport& report) {
  std::string text;
  for (const ClassAlone& side : report.alone) {
    text += side.plan
                ? fmt::format("alone           {} x {}: {} ({})\n", side.devices, side.device_class,
                              seconds_text(side.step_time_s), summary_of(*side.plan))
                : fmt::format("alone           {} x {}: no plan ({})\n", side.devices,
                              side.device_class, side.why_not);
  }
  if (const auto hsr = report.hsr()) {
    text += fmt::format("HSR             {:.4f} of the sum of the classes alone\n", *hsr);
  }
  return text;
}

/// Shows how wrong the prediction was before and after learning, then whether a re-plan pays.
std::string learned_text(const PlanReport& report) {
  if (!report.learned) return "";
  const LearnedRun& run = *report.learned;
  const auto compared = [&](double predicted_s) {
    return fmt::format("{} ({})", seconds_text(predicted_s),
                       change_text(predicted_s / run.measured_step_s));
  };
  std::string text =
      fmt::format("learned         {}: step measured {}, predicted {}, with the learned rates {}\n",
                  run.run_id, seconds_text(run.measured_step_s), compared(run.predicted_step_s),
                  compared(run.relearned_step_s));
  for (const LearnedRun::DeviceTime& device : run.classes) {
    text += fmt::format("                {} x {}: computes {} of a step, predicted {}\n",
                        device.ranks, device.device_class, seconds_text(device.measured_s),
                        seconds_text(device.predicted_s));
  }
  // Both throughputs use the learned rates, so the gain is that of the plan alone.
  const double gain = *report.replan_gain();
  return text +
         fmt::format("re-plan         {}: {} throughput over the plan of the run (from {:.1f} %)\n",
                     gain > report.replan_threshold ? "suggested" : "not needed",
                     change_text(1 + gain), 100 * report.replan_threshold);
}

std::string profiled_text(const PlanReport& report) {
  std::string text;
  for (const ProfiledRates::ClassFit& fit : report.profiled) {
    text += fmt::format(
        "profile         {}: {} entries, {}, predicted {}; with the new rates {:.1f} % off\n",
        fit.device_class, fit.entries, seconds_text(fit.profiled_s), seconds_text(fit.predicted_s),
        100 * fit.error);
  }
  return text;
}

/// "conv2d/forward, max_pool/forward": the kinds of that basis, those that take longest first.
std::string operations_text(const RateUse& use, RateBasis basis) {
  constexpr std::size_t most_named = 4;
  std::vector<std::string> names;
  for (const RateUse::Operation& entry : use.operations) {
    if (entry.basis != basis) continue;
    if (std::find(names.begin(), names.end(), entry.operation) == names.end()) {
      names.push_back(entry.operation);
    }
  }
  const std::size_t more = names.size() > most_named ? names.size() - most_named : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Tells which share of the computing time rests on measured operations, and what the rest is.
std::string rates_text(const PlanReport& report) {
  const RateUse& use = report.rates;
  const std::string& precision = report.plan.workload->precision;
  const auto& known = report.measured_precisions;
  if (std::find(known.begin(), known.end(), precision) == known.end()) {
    return fmt::format(
        "rates           analytic: no operation is measured{}\n",
        known.empty() ? ""
                      : fmt::format(" in {} (in {} they are)", precision, fmt::join(known, ", ")));
  }
  std::string text = fmt::format("rates           {:.1f} % of the computing time measured",
                                 100 * use.fraction(RateBasis::measured));
  const std::pair<RateBasis, const char*> others[] = {
      {RateBasis::other_shape, "measured at another shape"}, {RateBasis::analytic, "analytic"}};
  for (const auto& [basis, what] : others) {
    const double share = use.fraction(basis);
    if (share <= 0) continue;
    text += fmt::format(", {:.1f} % {} ({})", 100 * share, what, operations_text(use, basis));
  }
  return text + "\n";
}

/// The throughput of another planner's plan is told relative to the own one.
std::string imported_text(const PlanReport& report) {
  std::string text;
  for (const ImportedPlan& rival : report.imported) {
    if (!rival.why_not.empty()) {
      text +=
          fmt::format("imported        {}: cannot run here ({})\n", rival.source, rival.why_not);
      continue;
    }
    text += fmt::format("imported        {}: {}, {:.3f} of our throughput ({})\n", rival.source,
                        seconds_text(rival.step_time_s), rival.throughput() / report.throughput(),
                        summary_of(rival.plan));
  }
  return text;
}

}  // namespace

std::optional<double> PlanReport::replan_gain() const {
  if (!learned) return std::nullopt;
  const double before =
      static_cast<double>(learned->plan.samples_per_step()) / learned->relearned_step_s;
  return throughput() / before - 1;
}

std::optional<double> PlanReport::hsr() const {
  double sum = 0;
  for (const ClassAlone& side : alone) {
    if (side.plan) sum += static_cast<double>(side.plan->samples_per_step()) / side.step_time_s;
  }
  return heterogeneous_speed_ratio(throughput(), sum);
}

std::string plan_report_table(const PlanReport& report) {
  const PlanCertificate& c = report.certificate;
  const Plan& plan = report.plan;
  std::string text =
      fmt::format("{} on {}\nstage  nodes  recompute  fullest rank         replicas\n",
                  summary_of(plan), report.machine);
  for (const StageId s : plan.stages.ids()) text += stage_row(report, s);
  if (!plan.warm_up.empty()) {
    text += fmt::format("warm-up         {} forwards before the first backward\n",
                        fmt::join(plan.warm_up, " "));
  }
  for (const StageWire& wire : plan.wires) {
    text += fmt::format("wire            {} between stages {} and {}\n", to_string(wire.format),
                        wire.from.value(), wire.to.value());
  }
  // The best plan may leave devices out that would slow it down.
  if (report.devices > plan.ranks()) {
    text += fmt::format("idle            {} of {} devices\n", report.devices - plan.ranks(),
                        report.devices);
  }
  text += fmt::format(
      "step time       {}  throughput {}, {}\n"
      "operations      {} (strict)\n"
      "limited by      {}\n"
      "lower bound     {} ({}), {:.1f} % below\n",
      seconds_text(c.prediction.step_time_s), with_prefix(report.throughput(), "samples/s"),
      with_prefix(report.throughput() * static_cast<double>(report.units_per_sample),
                  report.unit + "s/s"),
      with_prefix(c.operations_per_s, operations_unit), c.limited_by, seconds_text(c.bound.seconds),
      c.bound.binding, 100 * c.gap);
  text += rates_text(report);
  if (report.expense.cost)
    text += fmt::format("cost            {:.6g} per step\n", *report.expense.cost);
  if (report.expense.joules)
    text += fmt::format("energy          {} per step\n", with_prefix(*report.expense.joules, "J"));
  if (report.search.plans.size() > 1) {
    const ReadyPlan& second = report.search.plans[1];
    text += fmt::format("runner-up       {} ({})\n", seconds_text(second.predicted().step_time_s),
                        summary_of(second.plan));
  }
  text += comparison_text(report) + profiled_text(report) + imported_text(report) +
          learned_text(report);
  for (const std::string& assumption : report.assumptions) {
    text += fmt::format("assumed         {}\n", assumption);
  }
  text += fmt::format("search          {}, {} candidates, {} simulated{}\n",
                      seconds_text(report.search.seconds), report.search.candidates,
                      report.search.simulated,
                      report.search.exhaustive ? ", every draft looked at"
                      : report.search.complete ? ""
                                               : ", ended by the time limit");
  return text;
}

}  // namespace heteroperf
