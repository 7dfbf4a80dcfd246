#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "automl/morph.hpp"
#include "automl/tpe.hpp"
#include "automl/trial.hpp"
#include "metrics/score.hpp"
#include "workloads/search_space.hpp"

namespace heteroperf {

struct SearchOptions {
  std::uint64_t seed = 1;
  SearchSpace space;
  std::size_t population = 20;  ///< the newest evaluated trials, so many, may become parents
  std::size_t tournament = 5;
  TpeOptions tpe;
};

struct SearchStatistics {
  std::uint64_t proposals = 0;
  std::uint64_t duplicates = 0;  ///< architectures that were drawn again and rejected
  std::uint64_t morphs = 0;      ///< morphs made, rejected ones included
};

/// Searches architectures by regularised evolution (Real et al., AAAI 2019) and hyper-parameters by
/// TPE. It is a pure function of the options and the order of calls. It is not thread-safe:
/// TrialMaster guards it.
class Search {
 public:
  /// `initial` is an image classifier that ends in a cross_entropy and lies within the space.
  Search(const ModelGraph& initial, SearchOptions options);

  /// Returns a trial whose architecture was never proposed before; its `steps` and `rung` are left
  /// 0. Throws UserError when the space holds no further architecture that the search can find.
  Trial propose();

  /// Tells how a proposed trial ended. Diverged and failed trials count as worst; truncated ones
  /// are merely no longer pending. An outcome of an unknown trial is a bug (Error{internal}).
  void report(const TrialOutcome& outcome);

  /// Replays an earlier run in its order of outcomes: afterwards the search proposes what it would
  /// have proposed there. Call it before the first propose. Throws UserError when a trial appears
  /// twice.
  void restore(std::span<const HistoryEntry> history);

  const SearchStatistics& statistics() const { return statistics_; }

 private:
  struct Member {
    std::uint64_t id = 0;
    ModelGraph architecture;
    Score score;
    /// True where no morph within the limits was found; absent before the first attempt.
    std::optional<bool> barren;
  };
  struct Candidate {
    Morphed morphed;
    std::optional<std::uint64_t> parent;
  };

  Candidate new_architecture(RandomStream& random);
  std::optional<Candidate> draw_candidate(std::size_t widening, RandomStream& random);
  Member& tournament(std::size_t first, std::size_t size, RandomStream& random);
  std::optional<Candidate> child_of(const ModelGraph& parent,
                                    std::optional<std::uint64_t> parent_id, std::size_t morphs,
                                    RandomStream& random);
  HyperParameters draw_hyper(const ModelGraph& architecture, RandomStream& random);
  void begin(std::uint64_t id, ModelGraph architecture, const HyperParameters& hyper);

  SearchOptions options_;
  ModelGraph initial_;  ///< an architecture: dropout 0, kernel 3
  std::string initial_hash_;
  MorphLimits limits_;
  Tpe tpe_;
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, ModelGraph> pending_;  ///< architectures by trial
  /// The evaluated ones, oldest first; the newest `population` may become parents.
  std::deque<Member> known_;
  std::unordered_set<std::string> seen_;  ///< hashes of the architectures proposed so far
  SearchStatistics statistics_;
};

}  // namespace heteroperf
