// How far the planner's plans are from the lower bound, on the random mixed clusters of
// tests/unit/runners/plan/search/random_cluster: one line per cluster, the median at the end.
//   plan_gap_study [CLUSTERS [FIRST_SEED [MODEL [SECONDS [DEVICES CLASSES [BATCH]]]]]]
// SECONDS is the search's time limit. Times are CPU seconds of one thread: making the tables,
// searching.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "runners/plan/search/bounds/lower_bound.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"
#include "tests/unit/runners/plan/search/random_cluster.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

double cpu_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string pools_of(const PlanningProblem& problem) {
  std::string text;
  for (const DevicePool& pool : problem.pools) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", pool.devices);
  }
  return text;
}

double study(std::uint64_t seed, const ModelGraph& graph, double limit_s,
             const RandomCluster& range, std::int64_t batch) {
  const Cluster cluster = range.draw(seed);
  PlanningRequest request;
  request.batch =
      batch > 0 ? batch : RandomCluster::batch(seed, static_cast<int>(cluster.ranks.size()));
  const double start = cpu_s();
  const GraphProblem problem(graph, cluster, request);
  const double made = cpu_s();
  PlanSearchOptions options;
  options.time_limit_s = limit_s;
  const SearchOutcome outcome = search_drafts(problem.problem(), options);
  const double found = cpu_s();
  const ScoredDraft& best = outcome.best.front();
  const PlanBound bound = plan_bound(problem.problem());
  const double bounded = cpu_s();
  const double gap = best.score.step_time_s / bound.seconds - 1;
  double reduction = 0;
  for (const StageScore& stage : best.score.stages) {
    reduction = std::max(reduction, stage.reduction_s + stage.optimizer_s);
  }
  fmt::print(
      "{:3} {:16} {:5.1f}/device {:7.3f} s gap {:5.1f} % {:.2f}+{:.2f} s cpu, sums {:4.1f} %, {}\n",
      seed, pools_of(problem.problem()),
      static_cast<double>(request.batch) / problem.problem().devices(), best.score.step_time_s,
      100 * gap, made - start, found - made, 100 * reduction / best.score.step_time_s,
      to_text(best.draft));
  fmt::print("      bound in {:.2f} s cpu, by {}:", bounded - found, bound.binding);
  for (const PlanBound::Constraint& one : bound.constraints) {
    fmt::print(" {} {:.3f}", one.name, one.seconds);
  }
  fmt::print("\n");
  std::fflush(stdout);
  return gap;
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** values) {
  const int clusters = count > 1 ? std::atoi(values[1]) : 100;
  const int first = count > 2 ? std::atoi(values[2]) : 0;
  const heteroperf::ModelGraph graph = heteroperf::build_model(count > 3 ? values[3] : "gpt2-xl");
  const double limit_s = count > 4 ? std::atof(values[4]) : 600;
  heteroperf::RandomCluster range;
  if (count > 6) {
    range.least_devices = range.most_devices = std::atoi(values[5]);
    range.least_classes = range.most_classes = std::atoi(values[6]);
  }
  const std::int64_t batch = count > 7 ? std::atoll(values[7]) : 0;
  std::vector<double> gaps;
  for (int seed = first; seed < first + clusters; ++seed) {
    gaps.push_back(
        heteroperf::study(static_cast<std::uint64_t>(seed), graph, limit_s, range, batch));
  }
  std::sort(gaps.begin(), gaps.end());
  fmt::print("median {:.1f} %, ninth decile {:.1f} %, largest {:.1f} %\n",
             100 * gaps[gaps.size() / 2], 100 * gaps[gaps.size() * 9 / 10], 100 * gaps.back());
  return 0;
}
