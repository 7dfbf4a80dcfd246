// The search for the fastest drafts of a problem, in seven phases that share one list of the best.
//
// (1) A beam fills pipelines pool after pool. (2) A dynamic program fills them with pools in
// groups. Both ask for pipelines whose stages all stay within a *period*, the time of one
// micro-batch, and lower the period by bisection. (3) Local search improves every draft kept so
// far. (4) Small problems are searched through by branch and bound. (5) Local search starts again
// from shaken drafts, unless phase 4 has looked at everything. (6) Promising drafts of one chunk
// are cut into several chunks per position. (7) Small problems are searched through with several
// chunks as well.
//
// The beam comes first because it finds good drafts soon, and a short time to beat prunes what
// follows. A closed formula sorts candidates; the exact clock has the word on those that the
// formula finds near the best. Every phase asks late(), so that the time limit ends the search with
// the best so far; nothing else depends on the clock, and a search that ends by itself is
// deterministic.
#include "runners/plan/search/draft_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/search/bounds/lower_bound.hpp"
#include "runners/plan/search/chunk_search.hpp"
#include "runners/plan/search/exhaustive_search.hpp"
#include "runners/plan/search/pipeline_beam.hpp"
#include "runners/plan/search/pipeline_fill.hpp"

namespace heteroperf {
namespace {

/// A formula's word is not trusted closer than this before the exact clock has spoken.
constexpr double estimate_room = 1.25;
/// Problems for which every draft can be looked at.
constexpr int most_exhaustive_devices = 8, most_exhaustive_layers = 8;
constexpr double most_exhaustive_drafts = 1e13;
constexpr int most_chunked_devices = 6, most_chunked_layers = 6;
/// Orders of pools: all of so many, so many of them with every micro-batch, and the micro-batches
/// that are worth all.
constexpr std::size_t most_permuted_pools = 5, few_orders = 4, good_sizes = 3;

/// Orders drafts by time; equal ones by the number of stages, then by any fixed order.
bool faster(const ScoredDraft& a, const ScoredDraft& b) {
  if (a.score.step_time_s != b.score.step_time_s) {
    return a.score.step_time_s < b.score.step_time_s;
  }
  if (a.draft.stages.size() != b.draft.stages.size()) {
    return a.draft.stages.size() < b.draft.stages.size();
  }
  return to_text(a.draft) < to_text(b.draft);
}

/// The fastest distinct drafts so far.
class BestDrafts {
 public:
  explicit BestDrafts(std::size_t keep) : keep_(keep) {}

  /// The step time in seconds of the last one kept, infinite while fewer than `keep` are known: a
  /// draft that is not faster is of no use.
  double time_to_beat() const {
    return drafts_.size() < keep_ ? infinite : drafts_.back().score.step_time_s;
  }

  /// Infinite while none is known.
  double best() const { return drafts_.empty() ? infinite : drafts_.front().score.step_time_s; }

  /// False where it is known, or no faster than all of those kept.
  bool add(ScoredDraft&& draft) {
    if (draft.score.step_time_s >= time_to_beat()) return false;
    if (!seen_.insert(to_text(draft.draft)).second) return false;
    const auto place = std::upper_bound(drafts_.begin(), drafts_.end(), draft, faster);
    drafts_.insert(place, std::move(draft));
    if (drafts_.size() > keep_) drafts_.pop_back();
    return true;
  }

  /// The fastest first; of equal times the fewest stages.
  const std::vector<ScoredDraft>& drafts() const { return drafts_; }

 private:
  std::size_t keep_;
  std::vector<ScoredDraft> drafts_;
  std::set<std::string> seen_;
};

/// One search over one problem. The phases of run() build on each other and are called once.
class DraftSearch {
 public:
  DraftSearch(const PlanningProblem& problem, const PlanSearchOptions& options)
      : problem_(problem),
        options_(options),
        scorer_(problem),
        filler_(scorer_),
        chunks_(scorer_, options.moves.schedules),
        plain_schedules_(options.moves.plain_schedules()),
        best_(options.keep) {}

  SearchOutcome run() {
    least_s_ = plan_bound(problem_, BoundScope::any_plan).seconds;
    fill_in_order();
    fill_all();
    improve_all();
    look_at_all();
    if (best_.drafts().empty() && !late()) throw UserError(fit_problems(problem_));
    restart();
    result_.complete = !late();
    if (best_.drafts().empty()) {
      throw UserError("no plan was found in the time given", "",
                      "Give a longer --time-limit, or check that the model fits at all.");
    }
    cut_into_chunks();
    result_.seconds = stopwatch_.elapsed_s();
    return std::move(result_);
  }

 private:
  /// True after the time limit. Phases end at their next question; drafts found stay.
  bool late() const { return stopwatch_.elapsed_s() > options_.time_limit_s; }
  std::function<bool()> stop() {
    return [this] { return late(); };
  }

  /// Numbers of samples of a micro-batch: those that divide the batch, about 32 micro-batches
  /// first.
  std::vector<std::int64_t> micro_batch_sizes() {
    double most = 0;
    for (const DevicePool& pool : problem_.pools) {
      most += static_cast<double>(pool.devices) * static_cast<double>(problem_.most_samples);
    }
    std::vector<std::int64_t> sizes = divisors(problem_.batch);
    std::erase_if(sizes, [&](std::int64_t size) { return static_cast<double>(size) > most; });
    const auto away = [&](std::int64_t samples) {
      const auto count = static_cast<double>(problem_.batch) / static_cast<double>(samples);
      return std::abs(std::log(count / 32));
    };
    // Smaller micro-batches never need more memory: what does not fit at all need not be tried.
    const auto end = std::ranges::partition_point(sizes, [&](std::int64_t samples) {
      const FillRules rules = FillRules::of_batch(problem_.batch, samples);
      // The first that fits at all is enough here, and better than nothing when time is short.
      bool fits = false;
      const auto stop_there = [&] { return fits || late(); };
      find_structures(filler_, any_period_s, rules, stop_there, [&](PipelineStructure&& structure) {
        fits = true;
        // The run with an endless period asks for memory alone; a draft from it is kept only as a
        // fallback.
        if (best_.best() < infinite || rules.micro_batches > most_micro_batches) return;
        if (auto draft = fill_structure(filler_, structure, any_period_s, rules))
          consider(std::move(*draft));
      });
      return fits;
    });
    // partition_point relies on the order: when one size does not fit, no larger one does.
    sizes.erase(end, sizes.end());
    std::ranges::stable_sort(sizes, [&](std::int64_t a, std::int64_t b) {
      return std::pair(away(a), a) < std::pair(away(b), b);
    });
    return sizes;
  }

  /// Orders of the pools along the pipeline, the last stage's first: of speed, of memory, and each
  /// the other way round; with few pools all others too.
  std::vector<std::vector<int>> pool_orders() const {
    std::vector<int> order;
    for (std::size_t pool = 0; pool < problem_.pools.size(); ++pool) {
      if (problem_.pools[pool].devices > 0) order.push_back(static_cast<int>(pool));
    }
    std::vector<std::vector<int>> orders;
    const auto add = [&](std::vector<int> pools) {
      for (int way = 0; way < 2; ++way) {
        if (std::ranges::find(orders, pools) == orders.end()) orders.push_back(pools);
        std::ranges::reverse(pools);
      }
    };
    // Pools stand fastest first in the problem.
    add(order);
    std::vector<int> by_memory = order;
    std::ranges::stable_sort(by_memory, [&](int a, int b) {
      return problem_.pools[a].memory_bytes < problem_.pools[b].memory_bytes;
    });
    add(by_memory);
    if (order.size() > most_permuted_pools) return orders;
    while (std::next_permutation(order.begin(), order.end())) add(order);
    return orders;
  }

  /// Pools one after the other: few orders with every micro-batch, then all of them with those
  /// micro-batches that were good.
  void fill_in_order() {
    PipelineBeam beam(filler_);
    const std::vector<std::vector<int>> orders = pool_orders();
    const std::size_t few = std::min<std::size_t>(orders.size(), few_orders);
    std::vector<std::pair<double, FillRules>> good;  // by the shortest step
    sizes_ = micro_batch_sizes();
    for (const std::int64_t samples : sizes_) {
      if (problem_.batch / samples > most_micro_batches) continue;
      const FillRules rules = FillRules::of_batch(problem_.batch, samples);
      double shortest = infinite;
      for (std::size_t i = 0; i < few; ++i) {
        shortest = std::min(shortest, fill_one_order(beam, orders[i], rules));
      }
      if (shortest < infinite) good.emplace_back(shortest, rules);
    }
    std::ranges::stable_sort(good, [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t g = 0; g < std::min(good.size(), good_sizes); ++g) {
      for (std::size_t i = few; i < orders.size(); ++i) {
        fill_one_order(beam, orders[i], good[g].second);
      }
    }
    result_.candidates += beam.tried();
  }

  /// Seconds of the shortest step that came of it. Only while nothing is known are periods far
  /// above the bound's tried.
  double fill_one_order(PipelineBeam& beam, const std::vector<int>& order, const FillRules& rules) {
    // A period below the bound's share of a micro-batch is impossible, and one above the best
    // step's cannot win.
    const double least = least_s_ / rules.micro_batches;
    double shortest = infinite;
    const auto visit = [&](PipelineDraft&& draft) {
      shortest = std::min(shortest, consider(std::move(draft)));
    };
    for (const double factor : {2.0, 4.0, 8.0, 32.0}) {
      const double most = std::min(best_.time_to_beat() / rules.micro_batches, factor * least);
      if (late() || most <= least) return shortest;
      if (beam.tighten(order, least * 0.98, most, rules, visit)) return shortest;
      if (best_.best() <= factor * least * rules.micro_batches) return shortest;
    }
    return shortest;
  }

  void fill_all() {
    for (const std::int64_t samples : sizes_) {
      if (problem_.batch / samples > most_micro_batches) continue;
      fill_one(FillRules::of_batch(problem_.batch, samples));
      if (late()) return;
    }
  }

  /// Structures that cover the model within some more than the shortest period thinkable, each then
  /// with its own shortest period. Longer ones than the best plan's cannot win.
  void fill_one(const FillRules& rules) {
    const double least = std::max(least_s_ / rules.micro_batches, 1e-12);
    // Longer periods find the structures of shorter ones again; each is tightened once.
    std::set<PipelineStructure> seen;
    double period_s = 0;
    const auto visit = [&](PipelineStructure&& structure) {
      if (late() || !seen.insert(structure).second) return;
      const double longest = std::min(period_s, best_.time_to_beat() / rules.micro_batches);
      if (auto draft = tighten_structure(filler_, structure, longest, rules))
        consider(std::move(*draft));
    };
    bool any = false;
    // The factors grow slowly where plans are likely; the last ones only serve problems in which
    // nothing else fits.
    for (const double factor : {1.04, 1.1, 1.2, 1.4, 1.8, 2.5, 4.0, 8.0, 1e2, 1e4, 1e8}) {
      period_s = factor * least;
      if (late() || least * rules.micro_batches * factor > best_.time_to_beat()) return;
      if (any && factor > 2) return;
      any = find_structures(filler_, period_s, rules, stop(), visit) || any;
    }
  }

  /// Considers a draft in every schedule of one chunk, with its shares balanced; returns the
  /// shortest step.
  double consider(PipelineDraft&& draft) {
    double shortest = infinite;
    for (const std::string& schedule : plain_schedules_) {
      PipelineDraft pipeline_draft = draft;
      set_schedule(pipeline_draft, schedule);
      shortest = std::min(shortest, consider_one(std::move(pipeline_draft)));
      if (draft.stages.size() == 1) break;
    }
    return shortest;
  }

  /// Returns the seconds that decide about a draft: the exact ones, or the formula's where these
  /// are too far from the best; infinite where it does not fit or was seen before.
  double consider_one(PipelineDraft&& draft) {
    if (!balance(draft)) return infinite;
    if (!seen_.insert(to_text(draft)).second) return infinite;
    ++result_.candidates;
    const DraftScore estimate = scorer_.estimate(draft);
    if (!estimate.fits()) return infinite;
    // Even a draft that is too slow by itself may be the fastest when it is cut into chunks.
    if (draft.schedule == "1f1b") chunks_.offer(draft, estimate);
    if (estimate.step_time_s > estimate_room * best_.time_to_beat()) return estimate.step_time_s;
    ++result_.candidates;
    DraftScore score = scorer_.score(draft);
    const double seconds = score.step_time_s;
    best_.add({std::move(draft), std::move(score)});
    return seconds;
  }

  /// Adds the end of a local search from the draft.
  void improve(const ScoredDraft& draft) {
    best_.add(improve_draft(draft, filler_, options_.moves, stop(), result_.candidates));
  }

  void improve_all() {
    const std::vector<ScoredDraft> scored_drafts = best_.drafts();
    for (const ScoredDraft& draft : scored_drafts) {
      if (!late()) improve(draft);
    }
  }

  /// Branch and bound over every draft, with optimizer states spread over replicas and without. The
  /// result counts as exhaustive only where neither run was stopped.
  void look_at_all() {
    const bool small =
        problem_.devices() <= most_exhaustive_devices && problem_.layers <= most_exhaustive_layers;
    if (!small) return;
    if (exhaustive_drafts(problem_) > most_exhaustive_drafts) return;
    bool all = true;
    for (const int zero_stage : {1, 0}) {
      ExhaustiveTask task{scorer_, zero_stage, best_.best(), stop(),
                          [&](ScoredDraft&& draft) { best_.add(std::move(draft)); }};
      all = search_every_draft(task) && all;
      result_.candidates += task.scored;
    }
    result_.exhaustive = all;
    if (!best_.drafts().empty()) improve(ScoredDraft(best_.drafts().front()));
  }

  /// Local search again, from the best draft after some random steps.
  void restart() {
    if (result_.exhaustive || best_.drafts().empty()) return;
    std::mt19937_64 random(options_.seed);
    for (int i = 0; i < options_.restarts && !late(); ++i) {
      const std::size_t which = random() % best_.drafts().size();
      PipelineDraft draft = best_.drafts()[which].draft;
      if (!shake(draft, random)) continue;
      ++result_.candidates;
      DraftScore score = scorer_.score(draft);
      if (score.fits()) improve({std::move(draft), std::move(score)});
    }
  }

  /// Drafts that several chunks make faster go before those of one chunk.
  void cut_into_chunks() {
    for (const ScoredDraft& scored_draft : best_.drafts()) {
      if (scored_draft.draft.schedule == "1f1b")
        chunks_.offer(scored_draft.draft, scored_draft.score);
    }
    // Where no schedule of one chunk is asked for, its drafts are but a way to those.
    const auto& asked = options_.moves.schedules;
    const bool plain_too =
        plain_schedules_.front() != "1f1b" || std::ranges::find(asked, "1f1b") != asked.end();
    const double to_beat =
        plain_too ? best_.best() * (1 - options_.moves.least_chunk_gain) : infinite;
    std::vector<ScoredDraft> chunked = chunks_.run(to_beat, options_.keep / 2, stop());
    result_.candidates += chunks_.scored();
    look_at_all_chunks(chunked.empty() ? to_beat : chunked.front().score.step_time_s, chunked);
    std::erase_if(chunked,
                  [&](const ScoredDraft& draft) { return draft.score.step_time_s >= to_beat; });
    for (const ScoredDraft& draft : best_.drafts()) {
      if (chunked.size() == options_.keep) break;
      if (plain_too || draft.draft.stages.size() == 1) chunked.push_back(draft);
    }
    if (chunked.empty()) {
      throw UserError(
          fmt::format("no plan of {} was found", fmt::join(options_.moves.schedules, ", ")), "",
          "Allow 1f1b too, or another batch.");
    }
    result_.best = std::move(chunked);
  }

  /// Looks at every draft of several chunks of a small problem. Only drafts that beat the best so
  /// far come out, so each goes to the front of the list.
  void look_at_all_chunks(double to_beat, std::vector<ScoredDraft>& chunked) {
    if (problem_.devices() > most_chunked_devices || problem_.layers > most_chunked_layers) return;
    for (const int zero_stage : {1, 0}) {
      // One place beyond half of the list, because the last one may lose to a plan of one chunk.
      ExhaustiveTask task{scorer_, zero_stage, to_beat, stop(), [&](ScoredDraft&& draft) {
                            to_beat = draft.score.step_time_s;
                            chunked.insert(chunked.begin(), std::move(draft));
                            if (chunked.size() > options_.keep / 2 + 1) chunked.pop_back();
                          }};
      search_every_chunked_draft(task, options_.moves.schedules);
      result_.candidates += task.scored;
    }
  }

  /// Moves three random cuts by up to two layers and balances all stages again; false where the
  /// draft no longer has room or has a single stage.
  bool shake(PipelineDraft& draft, std::mt19937_64& random) {
    if (draft.stages.size() < 2) return false;
    for (int step = 0; step < 3; ++step) {
      const std::size_t s = random() % (draft.stages.size() - 1);
      move_cut(draft, s, static_cast<int>(random() % 5) - 2);
    }
    return balance(draft);
  }

  bool balance(PipelineDraft& draft) const {
    return filler_.balance(draft, problem_.batch / draft.micro_batches, 0, draft.stages.size());
  }

  static constexpr std::int64_t most_micro_batches = 8192;
  const PlanningProblem& problem_;
  const PlanSearchOptions& options_;
  Stopwatch stopwatch_;
  DraftScorer scorer_;
  StageFiller filler_;
  ChunkSearch chunks_;
  std::vector<std::string> plain_schedules_;
  BestDrafts best_;
  std::vector<std::int64_t> sizes_;  ///< in a micro-batch, the likeliest first
  double least_s_ = 0;               ///< no step is shorter
  std::set<std::string> seen_;
  SearchOutcome result_;
};

}  // namespace

SearchOutcome search_drafts(const PlanningProblem& problem, const PlanSearchOptions& options) {
  check_problem(problem);
  return DraftSearch(problem, options).run();
}

}  // namespace heteroperf
