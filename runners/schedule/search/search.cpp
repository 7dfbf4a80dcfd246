// The search behind `auto`, `zb-1p`, `zb-2p` and `wave`: climbs a ladder of memory limits, and on
// each rung lets OrderSearch improve the best order so far. Published schedules of the same graph
// (*templates*) join at the first rung that admits them. Limits and shares of the evaluations
// depend on the graph alone, so that a search under a larger limit repeats the steps of one under a
// smaller limit before it goes on.

#include "runners/schedule/search/search.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/schedule/search/order_search.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

/// A memory limit the search climbs over, and its share of the evaluations.
struct Rung {
  double limit = 0;
  double share = 0;
};

/// The rungs are every whole number of micro-batches up to 2p, then multiples of p, then `most`.
std::vector<Rung> rungs(const PipelineGraph& graph, double least, double most) {
  std::vector<Rung> result;
  const int p = graph.ranks;
  for (int limit = 1; limit <= most && limit < graph.micro_batches;
       limit += limit < 2 * p ? 1 : p) {
    const double share = limit == p ? 0.25 : limit == 2 * p ? 0.5 : 0.2 / (2 * p);
    if (limit >= least) result.push_back({1.0 * limit, share});
  }
  if (result.empty() || result.back().limit < most) result.push_back({most, 0.2});
  return result;
}

/// A template as an order, with the least limit that admits it.
struct Offer {
  std::vector<std::int32_t> order;
  double memory = 0;
};

/// The templates that the problem can express.
std::vector<Offer> offers(const OrderProblem& problem, const std::vector<Schedule>& templates) {
  std::vector<Offer> result;
  for (const Schedule& schedule : templates) {
    Offer offer{problem.order_of(schedule), 0};
    if (offer.order.empty()) continue;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      offer.memory = std::max(offer.memory, peak_memory(problem, offer.order, rank));
    }
    result.push_back(std::move(offer));
  }
  return result;
}

/// A bound of the objective below which no order comes; the span is at least a rank's work.
double bound_of(const PipelineGraph& graph, Objective objective) {
  if (objective == Objective::makespan) return lower_bound(graph);
  const std::vector<double> work = graph.rank_work();
  return *std::max_element(work.begin(), work.end());
}

/// The limit, or infinity where all micro-batches together stay below it.
double effective_limit(const OrderProblem& problem, std::optional<double> asked) {
  if (!asked) return infinite;
  std::vector<double> all(problem.ranks(), 0);
  for (std::int32_t slot = 0; slot < problem.slots(); ++slot) {
    all[problem.task(slot).rank] += problem.task(slot).memory_change;
  }
  return *asked >= *std::max_element(all.begin(), all.end()) ? infinite : *asked;
}

}  // namespace

long long affordable_evaluations(const PipelineGraph& graph, const ScheduleRequest& request) {
  constexpr long long most_task_evaluations = 400'000'000, fewest = 400;
  long long tasks = 1;
  for (const Segment& segment : graph.segments) {
    tasks += 3LL * std::max(0, segment.micro_batches) * graph.parts;
  }
  return std::min<long long>(request.most_evaluations,
                             std::max(fewest, most_task_evaluations / tasks));
}

SearchResult search_schedule(const PipelineGraph& graph, const ScheduleRequest& request,
                             const std::vector<Schedule>& templates, MemoryLadder ladder) {
  const OrderProblem problem(graph);
  const ListScheduler scheduler(problem);
  const double limit = effective_limit(problem, request.memory_limit);
  double least = 0;
  for (int rank = 0; rank < problem.ranks(); ++rank) {
    least = std::max(least, scheduler.least_limit(rank));
  }
  // One search climbs all rungs, so that each begins with the best order of the one before.
  OrderSearch search(problem, request.objective, bound_of(graph, request.objective));
  search.stop_after(most_search_seconds);
  const std::vector<Offer> orders = offers(problem, templates);
  double before = -1;  // the rung before
  const std::vector<Rung> steps =
      ladder == MemoryLadder::climb ? rungs(graph, least, limit) : std::vector<Rung>{{limit, 1}};
  for (const Rung& rung : steps) {
    // Templates that fit into this rung, but did not fit into the one before, join now.
    for (const Offer& offer : orders) {
      if (offer.memory > before && offer.memory <= rung.limit + 1e-9) search.offer(offer.order);
    }
    before = rung.limit + 1e-9;
    // A rung may take its share of all evaluations, if so many are left.
    const auto share =
        static_cast<long long>(rung.share * static_cast<double>(request.most_evaluations));
    const long long left = request.most_evaluations - search.evaluations();
    search.improve(
        rung.limit, std::min(std::max(share, 1LL), left),
        random_bits(request.seed, static_cast<std::uint64_t>(std::min(rung.limit, 1e9) * 1024)));
  }
  if (!search.has_order()) throw scheduler.no_order(std::vector<double>(problem.ranks(), limit));
  OrderEvaluator evaluator(problem);
  HETEROPERF_ENSURE(evaluator.evaluate(search.best()));
  SearchResult result;
  result.schedule = problem.to_schedule(evaluator.sequence());
  result.objective = search.value();
  result.lower_bound = bound_of(graph, request.objective);
  result.evaluations = search.evaluations();
  result.proven = search.proven();
  result.out_of_time = search.out_of_time();
  return result;
}

}  // namespace heteroperf
