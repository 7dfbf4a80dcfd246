// Pipelines cut into several chunks per position.
//
// Filling and draining a pipeline costs about (p − 1) periods; with v chunks per position about a
// v-th of that. It pays where a step has few micro-batches per position. The search does not look
// for devices again: it takes *seeds*, good drafts of one chunk, keeps their devices and shares,
// and cuts the layers anew for every schedule and number of chunks. A seed's *hope* is its time
// without the part of the filling that chunks could save, an optimistic estimate that orders seeds
// and drops those that cannot beat the best.
//
// balanced() finds the cuts with the least work for the busiest position by bisection of the
// period. The best cut of each seed and schedule is improved by local search with the exact clock.
// Passes timed are counted, for the price of a score is their number, and `most_passes` bounds the
// work independently of the machine.
#include "runners/plan/search/chunk_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heteroperf {
namespace {

constexpr std::size_t most_seeds = 24;
/// All positions together make at most so many passes: beyond, filling is a small part of the step.
constexpr std::int64_t most_passes_of_one = 1 << 17;
/// The search makes at most so many scores.
constexpr std::uint64_t most_passes = 40'000'000;
constexpr int chunk_counts[] = {2, 3, 4, 6, 8};
/// A table's, a norm's: shifts between all pairs of few stages, of others between near ones.
constexpr int few_stages = 16;

int least_layers(const PipelineDraft& draft) {
  int least = draft.stages.front().end;
  for (const DraftStage& stage : draft.stages) least = std::min(least, stage.end - stage.first);
  return least;
}

/// Describes a draft without its cuts and recomputation.
std::string structure_of(const PipelineDraft& draft) {
  PipelineDraft bare = draft;
  for (DraftStage& stage : bare.stages) {
    stage.first = stage.end = 0;
    stage.recomputation = Recomputation::none;
  }
  return to_text(bare);
}

/// Gives each stage, from the first on, the layers that its position still has time for; false
/// where one has more than the period.
bool cut(const DraftScorer& scorer, PipelineDraft& draft, double period_s) {
  const auto stages = static_cast<int>(draft.stages.size());
  IdVector<PositionId, double> used(draft.positions(), 0);
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    DraftStage& stage = draft.stages[s];
    double& used_s = used[draft.position_of(StageId(s))];
    // The k-th chunk of a position may use k of `chunks` parts of its period, so that no chunk
    // takes all.
    const double until = period_s * (s / draft.positions() + 1) / draft.chunks;
    // Each stage that follows needs a layer.
    const int most = scorer.problem().layers - (stages - 1 - s);
    const auto work = [&](int end) {
      stage.end = end;
      return scorer.compute(stage).work_s();
    };
    stage.first = first;
    int end = s + 1 == stages ? most : first + 1;
    while (end < most && used_s + work(end + 1) <= until) ++end;
    used_s += work(end);
    if (used_s > period_s) return false;
    first = end;
  }
  return true;
}

/// The cuts with which the slowest position has the least to do. Nothing where there are fewer
/// layers than stages, or the schedule does not allow the numbers.
std::optional<PipelineDraft> balanced(const DraftScorer& scorer, const PipelineDraft& seed,
                                      const char* schedule, int chunks) {
  PipelineDraft draft = seed;
  draft.schedule = schedule;
  draft.chunks = chunks;
  const int positions = static_cast<int>(seed.stages.size());
  if (positions * chunks > scorer.problem().layers) return std::nullopt;
  draft.stages.resize(positions * chunks);
  double low = 0, high = 0;
  for (int s = 0; s < positions * chunks; ++s) {
    DraftStage& stage = draft.stages[s];
    stage = seed.stages[draft.position_of(StageId(s)).index()];
    // The schedule's order decides about warm-ups.
    stage.warm_up = 0;
    stage.wire = WireFormat::fp32;
    if (s < positions) high += scorer.compute(stage).work_s();
  }
  if (scorer.order_of(draft) == nullptr) return std::nullopt;
  // Other cuts may give a slow position more than it has in the seed.
  high *= 4;
  std::optional<PipelineDraft> best;
  while (high > low * 1.001) {
    const double middle = (low + high) / 2;
    const bool good = cut(scorer, draft, middle);
    (good ? high : low) = middle;
    if (good) best = draft;
  }
  return best;
}

using Visit = std::function<void(PipelineDraft&&)>;

void cuts(const PipelineDraft& draft, const Visit& visit) {
  for (std::size_t s = 0; s + 1 < draft.stages.size(); ++s) {
    for (const int by : {-2, -1, 1, 2}) {
      PipelineDraft moved = draft;
      if (move_cut(moved, s, by)) visit(std::move(moved));
    }
  }
}

/// A layer more to one stage, a layer less to another; those between keep their sizes.
void shifts(const PipelineDraft& draft, const Visit& visit) {
  const auto stages = static_cast<int>(draft.stages.size());
  const int near = stages <= few_stages ? stages : draft.positions() + 1;
  for (int from = 0; from < stages; ++from) {
    if (draft.stages[from].end - draft.stages[from].first < 2) continue;
    for (int to = std::max(0, from - near); to < std::min(stages, from + near + 1); ++to) {
      if (std::abs(from - to) < 2) continue;
      PipelineDraft moved = draft;
      const int by = from < to ? -1 : 1;
      for (int s = std::min(from, to); s < std::max(from, to); ++s) {
        moved.stages[s].end += by;
        moved.stages[static_cast<std::size_t>(s) + 1].first += by;
      }
      visit(std::move(moved));
    }
  }
}

/// Recomputation is changed for one stage, or for all stages of a position.
void recomputation(const PipelineDraft& draft, const Visit& visit) {
  const auto stages = static_cast<int>(draft.stages.size());
  for (const Recomputation r : recomputations) {
    for (int s = 0; s < stages; ++s) {
      if (draft.stages[s].recomputation == r) continue;
      PipelineDraft moved = draft;
      moved.stages[s].recomputation = r;
      visit(std::move(moved));
    }
    for (const PositionId q : first_ids<PositionId>(draft.positions())) {
      PipelineDraft moved = draft;
      for (int s = 0; s < stages; ++s) {
        if (draft.position_of(StageId(s)) == q) moved.stages[s].recomputation = r;
      }
      if (moved != draft) visit(std::move(moved));
    }
  }
  PipelineDraft moved = draft;
  moved.zero_stage = 1 - draft.zero_stage;
  visit(std::move(moved));
}

}  // namespace

ChunkSearch::ChunkSearch(const DraftScorer& scorer, const std::vector<std::string>& schedules)
    : scorer_(scorer), schedules_(chunked_schedules(schedules)) {}

void ChunkSearch::offer(const PipelineDraft& draft, const DraftScore& score) {
  const auto stages = static_cast<std::int64_t>(draft.stages.size());
  const int layers = least_layers(draft);
  if (schedules_.empty() || stages < 2 || scorer_.problem().layers < 2 * stages) return;
  if (4 * stages * draft.micro_batches > most_passes_of_one) return;
  double period = 0;
  for (const StageScore& stage : score.stages) period = std::max(period, stage.clock.work_s());
  // The time beyond M periods of the slowest stage is taken for filling.
  const double filling = std::max(0.0, score.makespan_s - draft.micro_batches * period);
  // No stage is cut into more chunks than it has layers.
  const double left = 1.0 / std::clamp(layers, 2, chunk_counts[std::size(chunk_counts) - 1]);
  Seed seed{score.step_time_s - filling * (1 - left), draft};
  const auto [place, is_new] = seeds_.try_emplace(structure_of(draft), seed);
  if (!is_new && seed.hope_s < place->second.hope_s) place->second = std::move(seed);
  if (seeds_.size() <= most_seeds) return;
  seeds_.erase(
      std::ranges::max_element(seeds_, {}, [](const auto& entry) { return entry.second.hope_s; }));
}

std::vector<ScoredDraft> ChunkSearch::run(double best_s, std::size_t keep,
                                          const std::function<bool()>& stop) {
  std::vector<ScoredDraft> drafts = cut_seeds(best_s, stop);
  const auto step_s = [](const ScoredDraft& draft) { return draft.score.step_time_s; };
  std::ranges::stable_sort(drafts, {}, step_s);
  // Only the most promising are worth a local search.
  if (drafts.size() > keep) drafts.resize(keep);
  for (ScoredDraft& draft : drafts) draft = improve(std::move(draft), stop);
  std::erase_if(drafts, [](const ScoredDraft& draft) { return !draft.score.fits(); });
  std::ranges::stable_sort(drafts, {}, step_s);
  return drafts;
}

/// Keeps the best schedule of every seed.
std::vector<ScoredDraft> ChunkSearch::cut_seeds(double best_s, const std::function<bool()>& stop) {
  std::vector<const Seed*> seeds;
  for (const auto& [structure, seed] : seeds_) {
    if (seed.hope_s < best_s) seeds.push_back(&seed);
  }
  std::ranges::stable_sort(seeds, {}, &Seed::hope_s);
  std::vector<ScoredDraft> drafts;
  for (const Seed* seed : seeds) {
    for (const DraftSchedule& schedule : schedules_) {
      std::optional<ScoredDraft> best;
      for (const int chunks : chunk_counts) {
        if (chunks < schedule.least_chunks || chunks > schedule.most_chunks) continue;
        if (stop() || passes_ > most_passes / 2) return drafts;
        auto draft = balanced(scorer_, seed->draft, schedule.name, chunks);
        if (!draft) continue;
        ScoredDraft scored = scored_draft(std::move(*draft));
        if (!best || worth(scored) < worth(*best)) best = std::move(scored);
      }
      if (best) drafts.push_back(std::move(*best));
    }
  }
  return drafts;
}

ScoredDraft ChunkSearch::scored_draft(PipelineDraft&& draft) {
  ++scored_;
  passes_ += 2 * draft.stages.size() * static_cast<std::size_t>(draft.micro_batches);
  DraftScore score = scorer_.score(draft);
  return {std::move(draft), std::move(score)};
}

ScoredDraft ChunkSearch::improve(ScoredDraft start, const std::function<bool()>& stop) {
  constexpr double least_gain = 1e-9;  // less is noise of sums
  const auto ended = [&] { return stop() || passes_ > most_passes; };
  for (bool better = true; better && !ended();) {
    better = false;
    for (const auto kind : {cuts, shifts, recomputation}) {
      std::optional<ScoredDraft> best;
      double to_beat = worth(start) * (1 - least_gain);
      kind(start.draft, [&](PipelineDraft&& draft) {
        if (ended()) return;
        ScoredDraft scored = scored_draft(std::move(draft));
        const double value = worth(scored);
        if (value >= to_beat) return;
        to_beat = value;
        best = std::move(scored);
      });
      if (!best) continue;
      start = std::move(*best);
      better = true;
    }
  }
  return start;
}

}  // namespace heteroperf
