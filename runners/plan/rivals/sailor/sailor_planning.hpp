#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "results/record/verify.hpp"
#include "runners/plan/rivals/sailor/sailor_score.hpp"
#include "runners/plan/rivals/sailor/sailor_search.hpp"

namespace heteroperf {

/// The measure by which plans for Sailor's inputs are searched and compared.
enum class PlanCostModel {
  own,          ///< exact simulation over the profiles
  sailor,       ///< its published formulas
  sailor_plus,  ///< our extension of them
};
/// "own", "sailor", "sailor+". Throws UserError.
PlanCostModel parse_cost_model(const std::string& text);
const char* to_string(PlanCostModel model);

struct SailorPlanningRequest {
  std::string source;   ///< folder of Sailor's inputs, or a training configuration in it
  std::string model;    ///< chooses among several training configurations
  std::string cluster;  ///< "A100-40=32,V100-16=96", trace.csv, trace.csv:ROW, or a cluster file
  std::vector<std::string> peers;  ///< plan files of Sailor's, to be scored beside ours
  PlanCostModel cost_model = PlanCostModel::sailor;
  std::optional<std::int64_t> batch;
  double time_limit_s = 10;
  bool compare = false;
  bool fill_profiles = false;  ///< analytic stand-ins for missing profiles
};

/// A plan by every measure that we have.
struct ScoredPeer {
  std::string name;
  SailorPlan plan;
  double formula_s = 0;    ///< `sailor`, or `sailor+` where pipelines have shares of their own
  double simulated_s = 0;  ///< 0: cannot be simulated
  bool fits = true;
  std::string why_not = {};  ///< not empty: not scored
  int devices = 0;           ///< the number of a place alone
};

struct SailorPlanReport {
  SailorPlanningRequest request;
  SailorTables tables;
  SailorDevices devices = {};
  ScoredPeer chosen = {};
  SailorSearchResult search = {};  ///< the efforts of all searches
  SailorReport parts = {};
  double lower_bound_s = 0;
  std::vector<ScoredPeer> alone = {};  ///< every place by itself, named by the place
  std::vector<ScoredPeer> peers = {};
  std::vector<std::string> notes = {};  ///< parts of the inputs that no plan could use

  double seconds(const ScoredPeer& scored) const;  ///< by the request's cost model
  std::optional<double> hsr() const;               ///< to the sum of the places alone
};

/// Throws UserError with everything wrong of inputs and cluster, and where nothing fits.
SailorPlanReport plan_sailor(const SailorPlanningRequest& request);

/// Scores the plan that `read` gives by the request's inputs: all of the report but search,
/// comparison and peers. Throws UserError as check_sailor_plan() does, and where the cluster has
/// not the devices.
SailorPlanReport score_sailor(const SailorPlanningRequest& request,
                              const std::function<SailorPlan(const SailorTables&)>& read);

/// True where a file says that it is a plan that sailor_plan_json_text() wrote.
bool is_sailor_plan_file(const std::string& path);
/// Recomputes the claims of such a file from its plan and the inputs that it names. Throws
/// UserError where it is none, or where the inputs cannot be read.
Verification verify_sailor_plan_file(const std::string& path);

/// The report as people read it, and as a plan file.
std::string sailor_plan_table(const SailorPlanReport& report);
std::string sailor_plan_json_text(const SailorPlanReport& report);

}  // namespace heteroperf
