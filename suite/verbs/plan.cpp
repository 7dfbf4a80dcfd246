#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <set>

#include "metrics/error.hpp"
#include "runners/cluster/shipped_clusters.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "suite/catalog.hpp"
#include "suite/run/chosen_plan.hpp"
#include "suite/run/plan_sources.hpp"
#include "suite/verbs/output_file.hpp"
#include "suite/verbs/plan_report.hpp"
#include "suite/verbs/verbs.hpp"

namespace heteroperf {
namespace {

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// The machine as the scaling rule sees it: its smallest memory and its slowest class.
ScalingInput scaling_input(const Cluster& cluster, Precision precision) {
  ScalingInput input;
  input.ranks = static_cast<int>(cluster.ranks.size());
  for (const DeviceClass& one : cluster.classes) {
    if (one.memory > Bytes(0) &&
        (input.memory_bytes == 0 || one.memory.value() < input.memory_bytes)) {
      input.memory_bytes = one.memory.value();
    }
    const auto rate = one.rates.find(to_string(precision));
    if (rate == one.rates.end()) continue;
    const double own = rate->second.value();
    input.ops_per_second = input.ops_per_second == 0 ? own : std::min(input.ops_per_second, own);
  }
  return input;
}

class PlanVerb : public Verb {
 public:
  const char* name() const override { return "plan"; }
  const char* summary() const override {
    return "the fastest plan for a workload on a mixed machine, with a certificate";
  }
  std::vector<std::string> examples() const override {
    return {"plan llm --size micro --cluster fast2_slow6 -o plan.json",
            "plan llm --cluster mixed.json --batch 1024 --compare homogeneous --time-limit 5"};
  }

  void declare(CLI::App& command) override {
    command.add_option("workload", workload_, "of `list workloads`")->required();
    const std::pair<const char*, std::string&> texts[] = {
        {"--cluster", cluster_},     {"--size", request_.size}, {"--model", request_.model},
        {"--precision", precision_}, {"--schedule", schedule_}, {"--compare", compare_},
        {"--objective", objective_}, {"--coarsest-wire", wire_}};
    constexpr const char* help[] = {
        "a file, or one of the shipped descriptions",
        "of the workload, or auto",
        "of the workload",
        "fp32, bf16, fp64",
        "1f1b, zb-h1, zb-h2; any of them by default",
        "homogeneous: also every class alone, with its own best plan",
        "time",
        "fp32, bf16, int8: how coarse activations may travel over slow links (fp32)"};
    for (std::size_t i = 0; i < std::size(texts); ++i) {
      command.add_option(texts[i].first, texts[i].second, help[i]);
    }
    command.add_option("--batch", batch_, "samples of a step; the workload's own by default");
    command.add_option("--sequence-length", sequence_length_, "of a language model");
    command.add_option("--time-limit", options_.time_limit_s,
                       "seconds; then the best plan so far, with its gap");
    command.add_option("--seed", options_.seed, "of the local search");
    command.add_option("-o,--out", out_, "write the plan here");
  }

  ExitCode run(const GlobalOptions& options) override {
    check_flags();
    OutputFile out = out_.empty() ? OutputFile() : OutputFile(out_);
    const PlanReport report = make_report();
    const std::string text = plan_report_json_text(report);
    if (out.given() && !out.write(text)) {
      throw UserError("cannot write " + out.path(), "", "Give -o a writable path.");
    }
    fmt::print("{}", options.json ? text : plan_report_table(report));
    return ExitCode::ok;
  }

 private:
  void check_flags() {
    ProblemList problems;
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
    expect("--schedule", schedule_, {"1f1b", "zb-h1", "zb-h2"});
    expect("--compare", compare_, {"homogeneous"});
    expect("--objective", objective_, {"time"});
    if (batch_ && (*batch_ < 1 || *batch_ > most_batch)) {
      problems.add(fmt::format("--batch {}", *batch_), "",
                   fmt::format("Give 1 to {}.", most_batch));
    }
    if (!(options_.time_limit_s > 0)) {
      problems.add(fmt::format("--time-limit {}", options_.time_limit_s), "",
                   "Give seconds above 0.");
    }
    problems.throw_if_any();
    if (!schedule_.empty()) options_.moves.schedules = {schedule_};
    if (!wire_.empty()) options_.moves.coarsest_wire = parse_wire_format(wire_);
    request_.precision = parse_precision(precision_);
    if (sequence_length_ > 0) request_.sequence_length = sequence_length_;
  }

  PlanReport make_report() {
    const Cluster cluster = find_cluster(cluster_);
    const Workload workload =
        find_workload(workload_).make(request_, scaling_input(cluster, request_.precision));
    PlanningRequest planning;
    planning.precision = workload.precision;
    planning.optimizer = workload.recipe.kind;
    planning.batch = batch_.value_or(workload.micro_batch * workload.micro_batches *
                                     static_cast<std::int64_t>(cluster.ranks.size()));
    PlanReport report;
    report.machine = cluster.name;
    report.assumptions = cluster.assumptions;
    report.devices = static_cast<int>(cluster.ranks.size());
    report.unit = workload.unit;
    report.units_per_sample = workload.units_per_sample;
    report.seed = options_.seed;
    report.search = search_plans(GraphProblem(workload.graph, cluster, planning), options_);
    report.plan = completed(report.search.plans.front().plan, workload);
    report.certificate =
        certify(report.plan, workload.graph, cluster, workload.precision, workload.recipe.kind);
    if (!compare_.empty()) compare(workload, cluster, planning, report);
    report.peak_rss_bytes = peak_rss_bytes();
    return report;
  }

  Plan completed(Plan plan, const Workload& workload) const {
    plan.workload = plan_workload(workload);
    plan.cluster = cluster_;
    return plan;
  }

  void compare(const Workload& workload, const Cluster& cluster, const PlanningRequest& planning,
               PlanReport& report) const {
    for (const ClassRanks& own : ranks_by_class(cluster)) {
      ClassAlone& alone = report.alone.emplace_back();
      alone.device_class = own.device_class;
      alone.devices = static_cast<int>(own.ranks.size());
      const Cluster part = part_of_cluster(cluster, own.ranks);
      try {
        const PlanSearchResult found =
            search_plans(GraphProblem(workload.graph, part, planning), options_);
        Plan plan = completed(found.plans.front().plan, workload);
        std::vector<RankId> devices;
        for (int rank = 0, end = plan.ranks(); rank < end; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          const auto of_part =
              plan.devices.empty() ? r : static_cast<std::size_t>(plan.devices[r].value());
          devices.push_back(own.ranks[of_part]);
        }
        plan.devices = std::move(devices);
        alone.step_time_s = found.plans.front().step_time_s;
        alone.plan = std::move(plan);
      } catch (const UserError& error) {
        alone.why_not = error.problems().front().text();
      }
    }
  }

  static constexpr std::int64_t most_batch = std::int64_t{1} << 24;
  WorkloadRequest request_;
  std::string workload_, cluster_, precision_ = "fp32", schedule_, compare_, objective_ = "time";
  std::string wire_, out_;
  std::optional<std::int64_t> batch_;
  std::int64_t sequence_length_ = 0;
  PlanSearchOptions options_;
};

}  // namespace

std::unique_ptr<Verb> make_plan_verb() { return std::make_unique<PlanVerb>(); }

}  // namespace heteroperf
