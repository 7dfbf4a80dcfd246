#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/record/verify.hpp"
#include "results/text/document.hpp"
#include "runners/plan/rivals/metis/metis.hpp"
#include "runners/plan/rivals/plan_imports.hpp"
#include "runners/plan/search/bounds/certificate.hpp"
#include "runners/plan/search/plan_objective.hpp"
#include "runners/plan/times/rate_use.hpp"
#include "suite/planning/learned_rates.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// A plan of the same batch that the own one is compared with.
struct BaselinePlan {
  std::optional<Plan> plan;  ///< on the mixed machine's ranks
  double step_time_s = 0;
  std::string why_not;  ///< where there is no plan
  double throughput() const { return static_cast<double>(plan->samples_per_step()) / step_time_s; }
};

/// One class of a mixed machine alone, with its own best plan.
struct ClassAlone : BaselinePlan {
  std::string device_class;
  int devices = 0;
};

/// The findings of `plan`.
struct PlanReport {
  Plan plan;
  Cluster cluster;   ///< the machine, of which the plan may leave devices out
  std::string unit;  ///< "token", "image"
  std::int64_t units_per_sample = 1;
  PlanCertificate certificate;
  PlanSearchResult search;
  std::string objective = "time";
  StepExpense expense;
  RateUse rates;  ///< the basis of the predicted computing time
  std::uint64_t seed = 1;
  std::uint64_t peak_rss_bytes = 0;
  std::vector<ClassAlone> alone;        ///< empty: not compared
  std::optional<BaselinePlan> centric;  ///< absent: not compared
  std::vector<ImportedPlan> imported;
  std::optional<LearnedRun> learned;
  double replan_threshold = 0;  ///< gain over the learned run's plan from which it is suggested
  std::vector<ProfiledRates::ClassFit> profiled;  ///< the result of --import metis

  double throughput() const { return certificate.prediction.throughput; }
  /// Throughput / the sum of every class's alone; absent where not compared.
  std::optional<double> hsr() const;
  /// Throughput / that of the learned run's plan − 1, both with the learned rates.
  std::optional<double> replan_gain() const;
};

/// The choice and its reasons: all that the report says of the plan, without the plans themselves.
Document plan_document(const PlanReport& report);
/// The plan file: the plan, and the document's keys as what is claimed of it.
std::string plan_report_json_text(const PlanReport& report);

/// Recomputes everything that a plan file claims, from the plan in it alone. Plans without claims
/// are checked to be sound. Throws UserError where the file is no plan, or does not say its
/// workload and cluster.
Verification verify_plan_file(const std::string& path);

}  // namespace heteroperf
