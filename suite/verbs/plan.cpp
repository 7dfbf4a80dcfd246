// The verb `plan`: searches the fastest (or cheapest) plan for a workload on a described machine
// and writes it with its certificate. The machine is put together first: the description, then
// rates that a profile knows better, then what a finished run teaches (--learn), then rates fitted
// to profiles of other planners. All of them are kept in the
// plan as its efficiency matrix, so that the plan alone is enough to verify it.
//
// With --import plans of other planners are simulated on the same machine and set beside the own
// one. One kind of import brings its own profiles and cost model in place of ours; then that
// planner's path is taken, and no workload of the catalog plays a part.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <tuple>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/rivals/hexiscale/hexiscale_machines.hpp"
#include "runners/plan/rivals/plan_imports.hpp"
#include "runners/plan/search/baseline_plans.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/planning/plan_report.hpp"
#include "suite/planning/plan_sources.hpp"
#include "suite/program/catalog.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/output_file.hpp"

namespace heteroperf {
namespace {

/// The largest memory of this process so far; the system tells it in KiB.
std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

class PlanVerb : public Verb {
 public:
  PlanVerb()
      : Verb({"plan",
              "the fastest plan for a workload on a mixed machine, with a certificate",
              {"plan llm --size micro --cluster fast2_slow6 -o plan.json",
               "plan --import sailor:profiles --cost-model sailor --cluster "
               "A100-40=32,V100-16=96"}}) {}

  void declare(CLI::App& command) override {
    command.add_option("workload", workload_, "of `list workloads`; not with --import sailor");
    const std::tuple<const char*, std::string&, const char*> texts[] = {
        {"--cluster", cluster_,
         "a file, one of the shipped descriptions, or hexiscale:FILE@B[,L[,W]] (a machine list; B "
         "GB/s and L µs between machines, W µs within)"},
        {"--size", request_.size, "of the workload, or auto"},
        {"--model", request_.model, "of the workload"},
        {"--freeze", request_.freeze,
         "components whose weights stay as they are, with commas between"},
        {"--schedule", schedule_,
         "1f1b, zb-h1, zb-h2, interleaved-1f1b, zb-v, v-half, v-min; any by default"},
        {"--compare", compare_,
         "homogeneous: also every class alone, with its own best plan; centric: the best plan with "
         "the last component's layout for all; both: homogeneous,centric"},
        {"--objective", objective_,
         "time, cost or energy of a step; the cluster's classes give prices or watts"},
        {"--cost-model", cost_model_,
         "own; of --import sailor also sailor, its published formulas, and sailor+ (uneven "
         "shares)"},
        {"--profile", profile_,
         "efficiency matrix with rates, bandwidths, prices and watts of the cluster's classes"},
        {"--learn", learn_,
         "a run on this cluster, else it is refused: its measured times correct the rates"}};
    for (const auto& [flag, value, help] : texts) command.add_option(flag, value, help);
    add_parsed_option(command, "--precision", request_.precision, parse_precision,
                      "fp32, bf16, fp64 (default fp32)");
    add_parsed_option(
        command, "--coarsest-wire", options_.moves.coarsest_wire,
        std::bind_front(parse_value_name<WireFormat>, "wire format"),
        "fp32, bf16, int8: how coarse activations may travel over slow links (default fp32)");
    command.add_option("--import", imports_,
                       "KIND:PATH, repeatable. sailor:DIR plans for Sailor's profiles, "
                       "sailor-plan:FILE is scored beside; flagscale:FILE and plan:FILE are "
                       "simulated beside ours; metis:DIR, a profile of the workload, gives the "
                       "cluster's classes their rates");
    command.add_flag("--fill-profiles", fill_profiles_,
                     "with --import sailor: analytic times for what is not profiled");
    command.add_option("--batch", batch_, "samples of a step; the workload's own by default");
    command.add_option("--seq,--sequence-length", sequence_length_, "of a language model");
    command.add_option("--images", images_, "of a sample of a vlm: from none to so many");
    command.add_option("--time-limit", options_.time_limit_s,
                       "seconds; then the best plan so far, with its gap");
    command.add_option("--replan-threshold", replan_threshold_,
                       "with --learn: gain from which a re-plan is suggested");
    command.add_option("--seed", options_.seed, "of the local search");
    add_typed_option(command, "-o,--out", out_, "FILE", "write the plan here");
  }

  ExitCode run(const GlobalOptions& options) override {
    const std::vector<PlanImport> imports = parse_imports(imports_);
    // At most one import can plan in our place.
    const ImportKind* planner = planner_among(imports);
    check_flags(planner);
    const OutputFile out(out_);
    const PlanTexts texts =
        planner != nullptr ? planner->plan(rival_request(imports)) : own_texts(imports, options);
    // The plan is kept before it is shown.
    out.save(texts.json);
    fmt::print("{}", options.json ? texts.json : texts.table);
    return ExitCode::ok;
  }

 private:
  /// The options that a planner of another kind understands.
  RivalRequest rival_request(const std::vector<PlanImport>& imports) const {
    return {imports,
            request_.model,
            cluster_,
            cost_model_,
            batch_,
            options_.time_limit_s,
            compares("homogeneous"),
            fill_profiles_};
  }

  PlanTexts own_texts(const std::vector<PlanImport>& imports, const GlobalOptions& options) {
    const PlanReport report = make_report(imports);
    const Document document = plan_document(report);
    if (options.reader) options.reader(document);
    return {plan_report_json_text(report), console_text(document, style_of(options))};
  }

  /// `planner`: an import that plans in place of our planner, or null.
  void check_flags(const ImportKind* planner) {
    ProblemList problems;
    if (planner == nullptr && workload_.empty()) {
      problems.add("no workload", "a plan is for one", "Give one of `heteroperf list workloads`.");
    }
    if (planner != nullptr && !workload_.empty()) {
      problems.add(fmt::format("the workload {} and --import {}", workload_, planner->name),
                   planner->no_workload,
                   "Leave the workload out; --model chooses among their models.");
    }
    if (planner == nullptr && !cost_model_.empty()) check_own_cost_model(cost_model_, problems);
    const auto expect = [&](const char* flag, const std::string& value,
                            const std::vector<std::string>& known) {
      if (value.empty() || std::find(known.begin(), known.end(), value) != known.end()) return;
      problems.add(fmt::format("{} {}", flag, value),
                   fmt::format("one of {}", fmt::join(known, ", ")));
    };
    if (cluster_.empty()) {
      problems.add(
          "no --cluster", "a plan is for a machine",
          fmt::format("Give a file, or one of {}.", fmt::join(shipped_cluster_names(), ", ")));
    }
    std::vector<std::string> schedules;
    for (const DraftSchedule& schedule : draft_schedules()) schedules.emplace_back(schedule.name);
    expect("--schedule", schedule_, schedules);
    for (const std::string& baseline : baselines()) {
      expect("--compare", baseline, {"homogeneous", "centric"});
    }
    if (planner != nullptr && compares("centric")) {
      problems.add(fmt::format("--compare centric with --import {}", planner->name),
                   "its models have one component", "Compare with homogeneous.");
    }
    expect("--objective", objective_, {"time", "cost", "energy"});
    if (planner != nullptr && objective_ != "time") {
      problems.add(fmt::format("--objective {} with --import {}", objective_, planner->name),
                   planner->no_objective);
    }
    if (batch_ && (*batch_ < 1 || *batch_ > most_batch)) {
      problems.add(fmt::format("--batch {}", *batch_), "",
                   fmt::format("Give 1 to {}.", most_batch));
    }
    if (!(options_.time_limit_s > 0)) {
      problems.add(fmt::format("--time-limit {}", options_.time_limit_s), "",
                   "Give seconds above 0.");
    }
    problems.throw_if_any();
    // A search without --schedule may choose any of them.
    if (!schedule_.empty()) options_.moves.schedules = {schedule_};
    if (sequence_length_ > 0) request_.sequence_length = sequence_length_;
    if (images_ > 0) request_.images = images_;
  }

  /// The baselines of --compare.
  std::vector<std::string> baselines() const {
    std::vector<std::string> names;
    std::istringstream list(compare_);
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    return names;
  }

  bool compares(const char* baseline) const {
    const std::vector<std::string> names = baselines();
    return std::find(names.begin(), names.end(), baseline) != names.end();
  }

  /// Plans the workload on the machine and gathers all that is told of the plan.
  PlanReport make_report(const std::vector<PlanImport>& imports) {
    PlanReport report;
    Cluster cluster = planned_machine(report);
    const CatalogEntry& entry = find_workload(workload_);
    // The size follows the described machine, not this one.
    const ScalingInput machine = scaling_input(cluster, request_.precision);
    WorkloadRequest request = request_;
    if (request.size.empty() && request.model.empty()) {
      // A workload reads only one of the two.
      request.size = request.model = entry.choose(machine).size;
    }
    const Workload workload = entry.make(request, machine);
    apply_profiles(imports, workload, report, cluster);
    PlanningRequest planning;
    planning.precision = workload.precision;
    planning.optimizer = workload.recipe.kind;
    // Without --batch a step has as many samples as the ranks would train data-parallel.
    planning.batch = batch_.value_or(workload.micro_batch * workload.micro_batches *
                                     static_cast<std::int64_t>(cluster.ranks.size()));
    // A re-plan is compared with the plan of the run, so it keeps its batch.
    if (report.learned && !batch_) {
      planning.batch = static_cast<std::int64_t>(report.learned->plan.samples_per_step());
    }
    report.cluster = cluster;
    report.unit = workload.unit;
    report.units_per_sample = workload.units_per_sample;
    report.seed = options_.seed;
    report.objective = objective_;
    report.search = search_plans_for(parse_plan_objective(objective_), workload.graph, cluster,
                                     planning, options_);
    const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
    const ReadyPlan& best = report.search.plans.front();
    // The certificate is computed apart from the search, by the code that verifies plan files.
    report.certificate = certify(task, best, cluster);
    report.rates =
        rate_use(workload.graph, best.staged, best.plan, *best.cluster, workload.precision);
    report.expense = step_expense(best, cluster);
    // The search works on a cluster with the rates applied; the plan carries them along.
    EfficiencyMatrix known = std::move(report.plan.efficiency);
    report.plan = completed(best.plan, workload);
    report.plan.efficiency = std::move(known);
    if (compares("homogeneous")) compare(workload, cluster, planning, report);
    if (compares("centric")) compare_centric(workload, cluster, planning, report);
    for (const PlanImport& import : imports) {
      // This kind brings rates, not a plan.
      if (import.kind->read == nullptr) continue;
      report.imported.push_back(score_import(import, workload, cluster));
    }
    report.peak_rss_bytes = peak_rss_bytes();
    return report;
  }

  /// Reads the machine and applies what a profile and a run know better.
  Cluster planned_machine(PlanReport& report) const {
    Cluster cluster = find_machine(cluster_);
    if (!profile_.empty()) {
      const EfficiencyMatrix profile = read_efficiency_matrix(profile_);
      check_profile(profile, cluster);
      report.plan.efficiency.merge(profile);
      apply(profile, cluster);
    }
    if (!learn_.empty()) {
      report.learned = learn_from_run(learn_, cluster);
      report.replan_threshold = replan_threshold_;
      report.plan.efficiency.merge(report.learned->matrix);
      apply(report.learned->matrix, cluster);
    }
    return cluster;
  }

  /// Fits rates to imported profiles of the workload. Each fit sees those before it.
  void apply_profiles(const std::vector<PlanImport>& imports, const Workload& workload,
                      PlanReport& report, Cluster& cluster) const {
    for (const PlanImport& import : imports) {
      if (import.kind->rates == nullptr) continue;
      const ProfiledRates fit =
          import.kind->rates(import.path, workload.graph, cluster, workload.precision);
      report.profiled.insert(report.profiled.end(), fit.classes.begin(), fit.classes.end());
      report.plan.efficiency.merge(fit.matrix);
      apply(fit.matrix, cluster);
    }
  }

  /// A profile of classes that the cluster does not have is another machine's.
  void check_profile(const EfficiencyMatrix& profile, const Cluster& cluster) const {
    std::set<std::string> known, here;
    for (const auto& [key, rate] : profile.rates()) known.insert(key.device_class);
    for (const auto& [key, value] : profile.values()) known.insert(key.first);
    for (const DeviceClass& device_class : cluster.classes) {
      // One class in common is enough: a profile may know more classes, or fewer.
      if (known.contains(device_class.name)) return;
      here.insert(device_class.name);
    }
    throw UserError(fmt::format("--profile {} is of {}", profile_, fmt::join(known, ", ")),
                    fmt::format("the cluster has {}", fmt::join(here, ", ")),
                    "Name the classes alike.");
  }

  /// A plan that names its workload and cluster can be run and verified by itself.
  Plan completed(Plan plan, const Workload& workload) const {
    plan.workload = plan_workload(workload);
    plan.cluster = cluster_;
    return plan;
  }

  /// Plans every class alone, with the same batch, for HSR.
  void compare(const Workload& workload, const Cluster& cluster, const PlanningRequest& planning,
               PlanReport& report) const {
    for (const ClassRanks& members : ranks_by_class(cluster)) {
      ClassAlone& alone = report.alone.emplace_back();
      alone.device_class = members.device_class;
      alone.devices = static_cast<int>(members.ranks.size());
      try {
        const ReadyPlan best =
            best_plan_alone(workload.graph, part_of_cluster(cluster, members.ranks), planning,
                            options_, report.plan.schedule, CutSearch::counts);
        alone.plan = on_whole_cluster(completed(best.plan, workload), members.ranks);
        alone.step_time_s = best.predicted().step_time_s;
      } catch (const UserError& error) {
        // A class that is too small for the model is no error of the comparison.
        alone.why_not = error.problems().front().text();
      }
    }
  }

  /// The best centric plan of the same batch, or why there is none.
  void compare_centric(const Workload& workload, const Cluster& cluster,
                       const PlanningRequest& planning, PlanReport& report) const {
    BaselinePlan& centric = report.centric.emplace();
    const auto take = [&](const ReadyPlan& best) {
      centric.plan = completed(best.plan, workload);
      centric.step_time_s = best.predicted().step_time_s;
    };
    // A search of all devices for the shortest step has it as a candidate.
    const std::vector<PlacedPlan>& placements = report.search.placements;
    const auto known = std::ranges::find(placements, "centric", &PlacedPlan::placement);
    const bool searched = known != placements.end() && objective_ == "time";
    try {
      if (!searched) return take(best_centric_plan(workload.graph, cluster, planning));
      if (known->ready) return take(*known->ready);
      centric.why_not = known->why_not;
    } catch (const UserError& error) {
      centric.why_not = error.problems().front().text();
    }
  }

  static constexpr std::int64_t most_batch = std::int64_t{1} << 24;
  WorkloadRequest request_;
  std::string workload_, cluster_, schedule_, compare_, objective_ = "time";
  std::string out_, cost_model_, profile_, learn_;
  double replan_threshold_ = AdaptConfig().replan_threshold;
  bool fill_profiles_ = false;
  std::vector<std::string> imports_;
  std::optional<std::int64_t> batch_;
  std::int64_t sequence_length_ = 0, images_ = 0;
  PlanSearchOptions options_;
};

}  // namespace

std::unique_ptr<Verb> make_plan_verb() { return std::make_unique<PlanVerb>(); }

}  // namespace heteroperf
