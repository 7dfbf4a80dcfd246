// How near the schedule search comes to the lower bound on chains of unequal stages: F, B, W of
// each rank independently uniform in 0.5 to 2, latency 0 or 5 % of the mean F, 2 to 16 ranks.
// Usage: schedule_search_study [cases]; default 500 for each setting.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/search/search.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

struct Setting {
  const char* name;
  double limit_per_rank;               // memory limit over ranks
  std::vector<int> micro_batch_rates;  // micro-batches over ranks; one is drawn
};

struct Outcome {
  int cases = 0, within_three_percent = 0, proven = 0, above_a_template = 0;
  std::vector<double> gaps;  // makespan over bound − 1
  double seconds = 0, most_seconds = 0;
};

ScheduleRequest draw(RandomStream& random, const Setting& setting) {
  ScheduleRequest request;
  request.ranks = 2 + static_cast<int>(random.below(15));
  const auto rate = setting.micro_batch_rates[random.below(setting.micro_batch_rates.size())];
  request.micro_batches = rate * request.ranks;
  request.costs = uniform_costs(request.ranks, 0, 0, 0, 0);
  StageCosts& costs = request.costs;
  for (auto* list : {&costs.forward, &costs.input_gradient, &costs.weight_gradient}) {
    for (double& cost : *list) cost = 0.5 + 1.5 * random.unit();
  }
  double forward = 0;
  for (const double cost : costs.forward) forward += cost / request.ranks;
  if (random.below(2) == 1) costs.latency = 0.05 * forward;
  request.memory_limit = setting.limit_per_rank * request.ranks;
  return request;
}

/// Of those that fit the limit and lie on a plain chain.
double best_template(const ScheduleRequest& request) {
  double best = std::numeric_limits<double>::infinity();
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}) {
    const Schedule schedule = find_generator(name).make(request);
    const std::vector<double> memory = memory_peaks(schedule).memory;
    if (*std::max_element(memory.begin(), memory.end()) > *request.memory_limit + 1e-9) continue;
    best = std::min(best, report(schedule, simulate(schedule)).makespan);
  }
  return best;
}

void study(const Setting& setting, int cases) {
  using Clock = std::chrono::steady_clock;
  RandomStream random(20240601);
  Outcome outcome;
  for (; outcome.cases < cases; ++outcome.cases) {
    const ScheduleRequest request = draw(random, setting);
    const auto begin = Clock::now();
    const SearchResult result = search_auto(request);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double makespan = report(result.schedule, simulate(result.schedule)).makespan;
    outcome.seconds += seconds;
    outcome.most_seconds = std::max(outcome.most_seconds, seconds);
    outcome.gaps.push_back(makespan / result.lower_bound - 1);
    outcome.within_three_percent += outcome.gaps.back() <= 0.03 ? 1 : 0;
    outcome.proven += result.proven ? 1 : 0;
    outcome.above_a_template += makespan > best_template(request) * (1 + 1e-12) ? 1 : 0;
  }
  std::sort(outcome.gaps.begin(), outcome.gaps.end());
  double mean = 0;
  for (const double gap : outcome.gaps) mean += gap / cases;
  fmt::print(
      "{:<22} {:>5} {:>7.1f} % {:>7.1f} % {:>6.2f} % {:>6.2f} % {:>6.2f} % {:>6} {:>7.3f} "
      "{:>7.3f}\n",
      setting.name, cases, 100.0 * outcome.within_three_percent / cases,
      100.0 * outcome.proven / cases, 100 * mean, 100 * outcome.gaps[cases * 9 / 10],
      100 * outcome.gaps.back(), outcome.above_a_template, outcome.seconds / cases,
      outcome.most_seconds);
  std::fflush(stdout);
}

}  // namespace
}  // namespace heteroperf

int main(int count, char** arguments) {
  const int cases = count > 1 ? std::max(1, std::atoi(arguments[1])) : 500;
  fmt::print("{:<22} {:>5} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>7} {:>7}\n", "setting", "cases",
             "within 3%", "at bound", "mean", "p90", "worst", "above", "s mean", "s most");
  for (const heteroperf::Setting& setting :
       {heteroperf::Setting{"m = 2p or 4p, limit 2p", 2, {2, 4}},
        heteroperf::Setting{"m = 2p or 4p, limit p", 1, {2, 4}},
        heteroperf::Setting{"m = p, limit 2p", 2, {1}}}) {
    heteroperf::study(setting, cases);
  }
}
