// The search behind `auto`, `zb-1p`, `zb-2p` and `wave`: climbs a ladder of memory limits, and on
// each rung lets OrderSearch improve the best order so far. Published schedules of the same graph
// (*templates*) join at the first rung that admits them. Limits and shares of the evaluations
// depend on the graph alone, so that a search under a larger limit repeats the steps of one under a
// smaller limit before it goes on.
//
// OrderSearch has three phases, each from the best result of the one before:
//  1. list scheduling over a grid of rules (ListRules), the same on all ranks;
//  2. random changes of single knobs of the best rules, on one rank, some neighbours or all;
//  3. random moves of tasks along the critical path of the best order itself.
// The first two explore orders that make sense as a whole, the last one mends details that no rule
// expresses. Phases 2 and 3 are late-acceptance hill climbing (Burke and Bykov 2017): a candidate
// is kept if it is no worse than the present one, or than the present one of some steps ago. That
// leaves local minima without a temperature to tune.

#include "runners/schedule/search/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/random.hpp"
#include "runners/schedule/search/list_scheduler.hpp"
#include "runners/schedule/simulate/report.hpp"

namespace heteroperf {
namespace {

constexpr double memory_slack = 1e-9;
constexpr std::size_t late_steps = 50;  // a candidate is compared with the one so many steps ago

/// Looks for a good order of one problem under one memory limit. The calls are offer() as wanted,
/// then improve() for each limit, ascending; best() is the best order so far.
class OrderSearch {
 public:
  OrderSearch(const OrderProblem& problem, Objective objective, double lower_bound)
      : problem_(&problem),
        objective_(objective),
        bound_(lower_bound),
        scheduler_(problem),
        evaluator_(problem),
        best_score_{infinite, infinite},
        place_(problem.size()) {}

  /// Takes an order from elsewhere into account if it can run. It costs one evaluation.
  void offer(const std::vector<std::int32_t>& order) {
    ++evaluations_;
    if (evaluator_.evaluate(order)) keep(score(evaluator_.times()), order);
  }

  /// Improves the best order under `memory_limit` with at most `evaluations`; `seed` decides all
  /// chance.
  void improve(double memory_limit, long long evaluations, std::uint64_t seed) {
    random_ = RandomStream(seed);
    memory_limit_ = memory_limit;
    budget_ = evaluations_ + evaluations;
    rules_score_ = {infinite, infinite};
    try_grid(memory_limit);
    const long long left = std::max(0LL, budget_ - evaluations_);
    if (rules_score_.value < infinite) change_rules(evaluations_ + left / 2);
    if (has_order()) move_tasks(budget_);
  }

  bool has_order() const { return !best_.empty(); }
  /// True where the best order reaches the lower bound.
  bool proven() const { return has_order() && value() <= bound_ * (1 + 1e-12); }
  double value() const { return best_score_.value; }
  const std::vector<std::int32_t>& best() const { return best_; }
  long long evaluations() const { return evaluations_; }
  bool out_of_time() const { return out_of_time_; }

 private:
  /// A smaller score is better.
  struct Score {
    double value = 0, end_sum = 0;
    friend auto operator<=>(const Score&, const Score&) = default;
  };

  /// Says whether evaluations and time are left, and the best order may still be beaten.
  bool may_go_on() {
    if (evaluations_ >= budget_ || proven() || out_of_time_) return false;
    out_of_time_ = stopwatch_.elapsed_s() > most_search_seconds;
    return !out_of_time_;
  }

  /// Compares by the objective first, and by the sum of the ranks' ends among equals.
  Score score(const OrderTimes& times) const {
    return {objective_ == Objective::makespan ? times.makespan : times.longest_span, times.end_sum};
  }

  /// Keeps an order that is better than the best so far.
  void keep(const Score& score, const std::vector<std::int32_t>& order) {
    if (!(score < best_score_)) return;
    best_score_ = score;
    best_ = order;
  }

  /// Schedules by rules; false where they admit no order.
  bool try_rules(const ListRules& rules, Score& result) {
    ++evaluations_;
    if (!scheduler_.run(rules)) return false;
    result = score(scheduler_.times());
    keep(result, scheduler_.order());
    return true;
  }

  /// Tries one knob after the other, the same on all ranks: from forwards first to gradients first,
  /// with or without waiting for tasks on their way, W as soon as possible or only where it fits
  /// whole.
  void try_grid(double memory_limit) {
    ListRules start;
    start.memory_limit.assign(problem_->ranks(), memory_limit);
    start.forward_bias.assign(problem_->graph().segments.size(), 0);
    rules_ = start;
    const auto best_of = [&](auto values, auto change) {
      const ListRules base = rules_;
      for (const double value : values) {
        if (!may_go_on()) return;
        ListRules rules = base;
        change(rules, value);
        Score result;
        if (try_rules(rules, result) && result < rules_score_) {
          rules_score_ = result;
          rules_ = std::move(rules);
        }
      }
    };
    const auto all = [&](double value) { return std::vector<double>(problem_->ranks(), value); };
    const auto set_age = [](ListRules& rules, double value) { rules.age = value; };
    const auto set_foresight = [&](ListRules& rules, double value) {
      rules.foresight = all(value);
    };
    const auto set_patience = [&](ListRules& rules, double value) { rules.patience = all(value); };
    rules_.foresight = all(0.4);
    rules_.patience = all(0.1);
    const double full = age_that_fills(memory_limit);
    best_of(std::array{1.0, full, 1.03 * full, 0.6, 2.0, 0.0, 1e4}, set_age);
    best_of(std::array{0.0, 0.2, 0.8}, set_foresight);
    best_of(std::array{0.0, 0.3, 0.6, 1.0}, set_patience);
    const double age = rules_.age;
    best_of(std::array{0.8 * age, 0.9 * age, 0.97 * age, 1.04 * age, 1.1 * age, 1.25 * age},
            set_age);
    best_of(std::array{0.5, 0.6, 1.0}, set_foresight);
  }

  /// The age with which the rank that a micro-batch returns to last runs ahead by the whole limit,
  /// and the others in proportion.
  double age_that_fills(double memory_limit) const {
    const auto& segments = problem_->graph().segments;
    double longest = 0;
    for (const SegmentId segment : segments.ids()) {
      if (segments[segment].micro_batches == 0) continue;
      const std::int32_t slot = problem_->first_slot(segment);
      const double away =
          problem_->task(slot).bottom_level - problem_->task(problem_->slots() + slot).bottom_level;
      longest = std::max(longest, away);
    }
    const double ahead = std::min(memory_limit, 1.0 * problem_->graph().micro_batches);
    return ahead * problem_->period() > 0 ? longest / (ahead * problem_->period()) : 1;
  }

  /// Climbs over rules, by late acceptance, until so many evaluations are used.
  void change_rules(long long until) {
    ListRules rules = rules_, next = rules_;
    Score current = rules_score_;
    std::vector<double> past(late_steps, current.value);
    for (std::size_t step = 0; evaluations_ < until && may_go_on(); ++step) {
      next = rules;
      mutate(next);
      Score result;
      double& late = past[step % past.size()];
      if (try_rules(next, result) && (result.value <= current.value || result.value < late)) {
        current = result;
        std::swap(rules, next);
      }
      late = current.value;
    }
  }

  /// Changes one to three knobs, each on one rank, on some neighbours, or on all.
  void mutate(ListRules& rules) {
    const auto some = [&](std::vector<double>& values, auto change) {
      const std::size_t a = random_.below(values.size()), b = random_.below(values.size());
      const auto kind = random_.below(3);
      const std::size_t first = kind == 0 ? 0 : kind == 1 ? std::min(a, b) : a;
      const std::size_t last = kind == 0 ? values.size() - 1 : kind == 1 ? std::max(a, b) : a;
      for (std::size_t i = first; i <= last; ++i) change(values[i], static_cast<int>(i));
    };
    for (std::uint64_t changes = 1 + random_.below(3); changes > 0; --changes) {
      const double share = random_.unit(), step = 2 * random_.unit() - 1;
      const bool zero = random_.below(3) == 0;
      switch (random_.below(6)) {
        case 0:
          rules.age = rules.age == 0 ? share : rules.age * std::exp2(step * share);
          break;
        case 1:
        case 2:
          some(rules.forward_bias, [&](double& value, int) {
            value += problem_->period() * step * std::exp2(3 * share);
          });
          break;
        case 3:
          some(rules.patience, [&](double& value, int) { value = zero ? 0 : share; });
          break;
        case 4:
          some(rules.foresight, [&](double& value, int) { value = zero ? 0 : share; });
          break;
        default: {
          const double most = std::min(memory_limit_, 1.0 * problem_->graph().micro_batches);
          some(rules.memory_limit, [&](double& value, int rank) {
            value = zero ? memory_limit_
                         : std::max(scheduler_.least_limit(rank), most * (1 - share * share));
          });
        }
      }
    }
  }

  /// Lists the tasks from the end that decides the objective back to the first start.
  void walk_critical_path(const std::vector<std::int32_t>& order) {
    critical_.clear();
    const std::int32_t none = -1;
    std::int32_t last = none;
    double most = -1;
    for (int rank = 0; rank < problem_->ranks(); ++rank) {
      const std::int32_t begin = problem_->first(rank), end = problem_->first(rank + 1);
      if (begin == end) continue;
      const double from = objective_ == Objective::makespan ? 0 : evaluator_.start(order[begin]);
      const double span = evaluator_.end(order[end - 1]) - from;
      if (span > most) {
        most = span;
        last = order[end - 1];
      }
    }
    for (; last != none; last = evaluator_.cause(last)) critical_.push_back(last);
  }

  /// Moves a task of the critical path that waited for its rank before some of the tasks it waited
  /// for, or one of these after it; then mends the rank's memory. The result is the rank, or −1
  /// where nothing fits.
  int propose(std::vector<std::int32_t>& order) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const auto at = random_.below(critical_.size() - 1);
      const std::int32_t later = critical_[at], earlier = critical_[at + 1];
      const int rank = problem_->task(later).rank;
      if (rank < 0 || problem_->task(earlier).rank != rank) continue;
      const std::int32_t begin = problem_->first(rank), end = problem_->first(rank + 1);
      const auto distance = static_cast<std::int32_t>(
          random_.below(2) == 0 ? 1 : 1 + random_.below(1 + random_.below(24)));
      const bool forwards = random_.below(2) == 0;
      const std::int32_t from = place_[forwards ? later : earlier];
      const std::int32_t to =
          forwards ? std::max(begin, from - distance) : std::min(end - 1, from + distance);
      if (from == to || order[from] % problem_->slots() == order[to] % problem_->slots()) continue;
      saved_.assign(order.begin() + begin, order.begin() + end);
      move(order, from, to);
      if (mend_memory(order, rank)) return rank;
      restore(order, rank);
    }
    return -1;
  }

  /// Moves one element of an order from one place to another.
  static void move(std::vector<std::int32_t>& order, std::int32_t from, std::int32_t to) {
    const auto o = order.begin();
    if (from < to) {
      std::rotate(o + from, o + from + 1, o + to + 1);
    } else {
      std::rotate(o + to, o + from, o + from + 1);
    }
  }

  /// Takes the last move back.
  void restore(std::vector<std::int32_t>& order, int rank) const {
    std::copy(saved_.begin(), saved_.end(), order.begin() + problem_->first(rank));
  }

  /// Moves, where an F does not fit, the next tasks that free memory before it. The result is false
  /// where that takes too many.
  bool mend_memory(std::vector<std::int32_t>& order, int rank) {
    const std::int32_t end = problem_->first(rank + 1);
    const double limit = memory_limit_ + memory_slack;
    double held = 0;
    int mended = 0;
    for (std::int32_t i = problem_->first(rank); i < end; ++i) {
      double change = problem_->task(order[i]).memory_change;
      while (held + change > limit) {
        std::int32_t filler = i + 1;
        while (filler < end && problem_->task(order[filler]).memory_change >= 0) ++filler;
        if (filler == end || filler > i + 64 || ++mended > 64) return false;
        move(order, filler, i);
        held += problem_->task(order[i]).memory_change;
        if (++i == end) return false;
        change = problem_->task(order[i]).memory_change;
      }
      held += change;
    }
    return true;
  }

  /// Climbs over orders, by late acceptance, until so many evaluations are used.
  void move_tasks(long long until) {
    std::vector<std::int32_t> order = best_;
    evaluator_.evaluate(order);
    Score current = score(evaluator_.times());
    std::vector<double> past(late_steps, current.value);
    walk_critical_path(order);
    for (std::size_t i = 0; i < order.size(); ++i) place_[order[i]] = static_cast<std::int32_t>(i);
    for (std::size_t step = 0; evaluations_ < until && may_go_on(); ++step) {
      ++evaluations_;
      if (critical_.size() < 2) return;
      const int rank = propose(order);
      if (rank < 0) continue;
      double& late = past[step % past.size()];
      const bool runs = evaluator_.evaluate(order);
      const Score next = runs ? score(evaluator_.times()) : Score{infinite, infinite};
      if (next.value > current.value * (1 + 1e-12) && next.value >= late) {
        restore(order, rank);
      } else {
        current = next;
        keep(next, order);
        for (std::int32_t i = problem_->first(rank); i < problem_->first(rank + 1); ++i) {
          place_[order[i]] = i;
        }
        walk_critical_path(order);
      }
      late = current.value;
    }
  }

  const OrderProblem* problem_;
  Objective objective_;
  double bound_;
  ListScheduler scheduler_;
  OrderEvaluator evaluator_;
  RandomStream random_{0};
  ListRules rules_;  // the best rules under the present limit
  Score rules_score_;
  double memory_limit_ = 0;
  std::vector<std::int32_t> best_;
  Score best_score_;
  std::vector<std::int32_t> place_;     // [task]: index in the order that moves
  std::vector<std::int32_t> critical_;  // the tasks of its critical path, from the end back
  std::vector<std::int32_t> saved_;     // the changed rank's tasks before the move
  long long evaluations_ = 0, budget_ = 0;
  Stopwatch stopwatch_;
  bool out_of_time_ = false;
};

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
    const double backward = problem.task(problem.slots() + slot).memory_change;
    all[problem.task(slot).rank] += problem.task(slot).memory_change + std::max(0.0, backward);
  }
  return *asked >= *std::max_element(all.begin(), all.end()) ? infinite : *asked;
}

}  // namespace

std::optional<double> limit_to_room(PipelineGraph& graph) {
  const OrderProblem problem(graph);
  const ListScheduler scheduler(problem);
  double fullest = 0;  // the share of the fullest rank in the least order
  for (Segment& segment : graph.segments) {
    const double least = scheduler.least_limit(segment.rank);
    fullest = std::max(fullest, std::min(least, 1.0));
    segment.activation /= std::max(1.0, least);
  }
  if (fullest == 0) return std::nullopt;
  for (Segment& segment : graph.segments) segment.activation /= fullest;
  return 1 / fullest;
}

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
