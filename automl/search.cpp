#include "automl/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "automl/graph_rebuild.hpp"
#include "metrics/base/error.hpp"

// Regularised evolution: a new architecture is a morph of the best of a few trials drawn from the
// newest ones (a *tournament* in a *population*). Old trials drop out however good they were, which
// keeps the search moving. An architecture is proposed only once; where draws only repeat known
// ones, the choice is *widened* step by step. The hyper-parameters of a trial come from TPE
// (tpe.hpp).
namespace heteroperf {
namespace {

/// At most so many morphs make a member of the initial population.
constexpr std::size_t initial_morphs = 3;
/// The choice is widened after so many draws that gave no new architecture.
constexpr std::size_t redraws = 8;
/// Steps of widening: more morphs, any known parent, then fresh lines of descent.
constexpr std::size_t widenings = 12;
/// So many evaluated architectures are kept as parents of a wide choice.
constexpr std::size_t known_graphs = 256;

/// The use of a stream of random numbers; it keeps the streams of one seed apart.
enum class Purpose : std::uint64_t {
  proposal = 0x70726f706f73616c,
  training = 0x747261696e696e67,
  barrenness = 0x62617272656e,
};

/// Returns the seed of one trial's stream for one purpose.
std::uint64_t seed_for(std::uint64_t seed, Purpose purpose, std::uint64_t trial) {
  return random_bits(seed, static_cast<std::uint64_t>(purpose), trial);
}

/// The positions of the hyper-parameters in a point of the TPE.
enum Position : std::size_t { dropout, kernel, batch, learning_rate };

/// Describes the hyper-parameters to TPE.
std::vector<Dimension> dimensions(const SearchSpace& space) {
  return {{Scale::linear, space.dropout_min, space.dropout_max, 0},
          {Scale::categorical, 0, 0, space.kernels.size()},
          {Scale::categorical, 0, 0, space.batches.size()},
          {Scale::logarithmic, space.learning_rate_min, space.learning_rate_max, 0}};
}

/// Returns the index of `value` or of the nearest choice (a restored trial may stem from another
/// space).
double choice_of(const std::vector<std::int64_t>& choices, std::int64_t value) {
  const auto nearest = std::min_element(
      choices.begin(), choices.end(),
      [&](std::int64_t a, std::int64_t b) { return std::abs(a - value) < std::abs(b - value); });
  return static_cast<double>(nearest - choices.begin());
}

/// Turns hyper-parameters into a point of the TPE, clamped to the space.
std::vector<double> point_of(const SearchSpace& space, const HyperParameters& hyper) {
  return {std::clamp(hyper.dropout, space.dropout_min, space.dropout_max),
          choice_of(space.kernels, hyper.kernel), choice_of(space.batches, hyper.batch),
          std::clamp(hyper.learning_rate, space.learning_rate_min, space.learning_rate_max)};
}

/// Scores an outcome: diverged, failed and truncated trials are unusable.
Score score_of(const TrialOutcome& outcome) {
  const bool usable =
      (outcome.state == TrialState::completed || outcome.state == TrialState::stopped) &&
      std::isfinite(outcome.quality);
  return {usable, outcome.steps, outcome.quality, outcome.loss};
}

}  // namespace

Search::Search(const ModelGraph& initial, SearchOptions options)
    : options_(std::move(options)), tpe_(dimensions(options_.space), options_.tpe) {
  HETEROPERF_EXPECT(options_.population > 0 && options_.tournament > 0);
  HETEROPERF_EXPECT(initial.node(initial.input()).output.size() == 3);
  initial_ = architecture_of(initial);
  initial_hash_ = initial_.hash();
  limits_ = limits_for(options_.space, initial_);
  HETEROPERF_EXPECT(within_limits(initial_, limits_));
}

Trial Search::propose() {
  const std::uint64_t id = next_id_;
  RandomStream random(seed_for(options_.seed, Purpose::proposal, id));
  Candidate candidate = new_architecture(random);
  Trial trial;
  trial.id = next_id_++;
  trial.parent = candidate.parent;
  trial.morph = std::move(candidate.morphed.text);
  trial.hyper = draw_hyper(candidate.morphed.graph, random);
  trial.graph = graph_with(candidate.morphed.graph, trial.hyper.dropout, trial.hyper.kernel);
  trial.seed = seed_for(options_.seed, Purpose::training, id);
  begin(id, std::move(candidate.morphed.graph), trial.hyper);
  ++statistics_.proposals;
  return trial;
}

/// Draws until an architecture is new. Each known one is counted and drawn anew; after `redraws` of
/// them, and when no morph fits, the choice is widened.
Search::Candidate Search::new_architecture(RandomStream& random) {
  if (seen_.insert(initial_hash_).second) return {{initial_, ""}, std::nullopt};
  for (std::size_t widening = 0; widening <= widenings; ++widening) {
    for (std::size_t draw = 0; draw < redraws; ++draw) {
      std::optional<Candidate> candidate = draw_candidate(widening, random);
      if (!candidate) continue;
      if (seen_.insert(candidate->morphed.graph.hash()).second) return std::move(*candidate);
      ++statistics_.duplicates;
    }
  }
  throw UserError("the search found no further architecture",
                  fmt::format("{} were proposed; at most {} layers, {} parameters, width {}, {} "
                              "operations per sample",
                              seen_.size(), limits_.max_layers, limits_.max_parameters,
                              limits_.max_width, limits_.max_ops_per_sample.to_string()),
                  "Widen the limits of the search space.");
}

/// Draws within a *breadth*: 0 takes a morph of a parent that won a tournament, 1 of any known
/// parent, 2 a fresh chain from the initial architecture. Morphs only grow, so a population that
/// has reached the limits has no children of its own, and breadth 2 starts new lines. Within a
/// breadth, chains become longer.
std::optional<Search::Candidate> Search::draw_candidate(std::size_t widening,
                                                        RandomStream& random) {
  const bool founding = next_id_ < options_.population || known_.empty();
  const std::size_t breadth = founding ? 2 : std::min<std::size_t>(widening / 2, 2);
  if (breadth == 2) {
    const std::size_t longest = initial_morphs * (1 + widening);
    return child_of(initial_, std::nullopt, 1 + random.below(longest), random);
  }
  const std::size_t population = std::min(options_.population, known_.size());
  Member& parent = breadth == 0
                       ? tournament(known_.size() - population, options_.tournament, random)
                       : tournament(0, 1, random);
  if (!parent.barren) {
    // Draws of its own find that out, so that a restored search comes to the same answer.
    RandomStream trials(seed_for(options_.seed, Purpose::barrenness, parent.id));
    parent.barren = !random_morph(parent.architecture, limits_, trials).has_value();
  }
  if (*parent.barren) return std::nullopt;
  return child_of(parent.architecture, parent.id, 1 + widening % 2, random);
}

/// Returns the best of `size` draws, with replacement, among the members from `first` on.
Search::Member& Search::tournament(std::size_t first, std::size_t size, RandomStream& random) {
  const auto draw = [&] { return &known_[first + random.below(known_.size() - first)]; };
  Member* best = draw();
  for (std::size_t i = 1; i < size; ++i) {
    Member* rival = draw();
    if (better(rival->score, best->score)) best = rival;
  }
  return *best;
}

/// Makes a chain of morphs, cut short where no further one fits; nothing when not even one does.
std::optional<Search::Candidate> Search::child_of(const ModelGraph& parent,
                                                  std::optional<std::uint64_t> parent_id,
                                                  std::size_t morphs, RandomStream& random) {
  std::optional<Candidate> child;
  for (std::size_t i = 0; i < morphs; ++i) {
    auto next = random_morph(child ? child->morphed.graph : parent, limits_, random);
    if (!next) break;
    ++statistics_.morphs;
    if (child) next->text = child->morphed.text + "; " + next->text;
    child = Candidate{std::move(*next), parent_id};
  }
  return child;
}

/// Lets TPE draw. A kernel that the operation limit does not admit gives way to the next smaller
/// one.
HyperParameters Search::draw_hyper(const ModelGraph& architecture, RandomStream& random) {
  const SearchSpace& space = options_.space;
  const std::vector<double> point = tpe_.suggest(random);
  HyperParameters hyper;
  hyper.dropout = point[dropout];
  hyper.batch = space.batches[static_cast<std::size_t>(point[batch])];
  hyper.learning_rate = point[learning_rate];
  const auto admitted = [&](std::int64_t size) {
    return within_limits(graph_with(architecture, hyper.dropout, size), limits_);
  };
  auto choice = static_cast<std::size_t>(point[kernel]);
  while (choice > 0 && !admitted(space.kernels[choice])) --choice;
  hyper.kernel = space.kernels[choice];
  return hyper;
}

/// Notes a trial whose outcome is awaited.
void Search::begin(std::uint64_t id, ModelGraph architecture, const HyperParameters& hyper) {
  tpe_.begin(id, point_of(options_.space, hyper));
  pending_.emplace(id, std::move(architecture));
}

void Search::report(const TrialOutcome& outcome) {
  const auto pending = pending_.find(outcome.id);
  HETEROPERF_EXPECT(pending != pending_.end());
  ModelGraph architecture = std::move(pending->second);
  pending_.erase(pending);
  if (outcome.state == TrialState::truncated) return tpe_.drop(outcome.id);
  const Score score = score_of(outcome);
  tpe_.finish(outcome.id, score);
  known_.push_back({outcome.id, std::move(architecture), score, std::nullopt});
  if (known_.size() > std::max(known_graphs, options_.population)) known_.pop_front();
}

void Search::restore(std::span<const HistoryEntry> history) {
  HETEROPERF_EXPECT(statistics_.proposals == 0);
  for (const HistoryEntry& entry : history) {
    const std::uint64_t id = entry.trial.id;
    ModelGraph architecture = architecture_of(entry.trial.graph);
    if (!seen_.insert(architecture.hash()).second) {
      throw UserError(fmt::format("trial {} of the history was trained before", id),
                      "its architecture appears twice");
    }
    next_id_ = std::max(next_id_, id + 1);
    begin(id, std::move(architecture), entry.trial.hyper);
    report(entry.outcome.value_or(TrialOutcome{.id = id, .state = TrialState::truncated}));
  }
}

}  // namespace heteroperf
