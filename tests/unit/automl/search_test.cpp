#include "automl/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "automl/graph_rebuild.hpp"
#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "tests/unit/automl/sample_graphs.hpp"
#include "workloads/graph/model_graph_json.hpp"

namespace heteroperf {
namespace {

/// A landscape over architectures: a preferred depth, size and number of skips; and over
/// hyper-parameters: a preferred learning rate. Best 1.
double landscape(const ModelGraph& graph) {
  double convs = 0, skips = 0;
  for (const Node& node : graph.nodes()) {
    convs += std::holds_alternative<Conv2d>(node.attributes);
    skips += std::holds_alternative<Add>(node.attributes);
  }
  const double size = std::log2(static_cast<double>(graph.parameter_count()));
  const auto bump = [](double x, double at, double width) {
    return std::exp(-std::pow((x - at) / width, 2.0));
  };
  return bump(convs, 15, 6) * bump(size, 15.5, 2) * bump(skips, 7, 5);
}

TrialOutcome completed(const Trial& trial, double quality) {
  TrialOutcome outcome;
  outcome.id = trial.id;
  outcome.quality = quality;
  outcome.loss = 1.0 - quality;
  outcome.steps = 10;
  return outcome;
}

SearchOptions options_with(std::uint64_t seed) {
  SearchOptions options;
  options.seed = seed;
  options.space.max_ops_ratio = 200.0;
  return options;
}

TEST(Search, StartsWithTheInitialArchitecture) {
  Search search(small_resnet(), options_with(1));
  const Trial trial = search.propose();
  EXPECT_EQ(trial.id, 0u);
  EXPECT_EQ(trial.morph, "");
  EXPECT_FALSE(trial.parent.has_value());
  EXPECT_EQ(architecture_of(trial.graph).hash(), architecture_of(small_resnet()).hash());
}

TEST(Search, NeverProposesAnArchitectureTwiceAndKeepsToTheSpace) {
  SearchOptions options = options_with(2);
  options.space.max_ops_ratio = 3.0;
  Search search(small_resnet(), options);
  const MorphLimits limits = limits_for(options.space, architecture_of(small_resnet()));
  std::unordered_set<std::string> hashes;
  for (int i = 0; i < 300; ++i) {
    const Trial trial = search.propose();
    EXPECT_TRUE(hashes.insert(architecture_of(trial.graph).hash()).second) << trial.morph;
    EXPECT_TRUE(within_limits(trial.graph, limits)) << trial.morph;
    const HyperParameters& h = trial.hyper;
    EXPECT_TRUE(h.dropout >= 0.0 && h.dropout <= 0.3) << h.dropout;
    EXPECT_TRUE(h.learning_rate >= 1e-3 && h.learning_rate <= 0.3) << h.learning_rate;
    EXPECT_TRUE(h.kernel == 3 || h.kernel == 5 || h.kernel == 7);
    EXPECT_TRUE(h.batch == 16 || h.batch == 32 || h.batch == 64);
    EXPECT_EQ(graph_to_text(graph_with(trial.graph, h.dropout, h.kernel)),
              graph_to_text(trial.graph));
    if (i % 3 != 2) search.report(completed(trial, landscape(trial.graph)));
  }
}

TEST(Search, IsAFunctionOfSeedAndCalls) {
  const auto run = [](std::uint64_t seed) {
    Search search(small_resnet(), options_with(seed));
    std::vector<std::string> log;
    std::vector<Trial> open;
    for (int i = 0; i < 80; ++i) {
      open.push_back(search.propose());
      const Trial& trial = open.back();
      log.push_back(fmt::format("{} {} {} {} {}", trial.graph.hash(), trial.morph, trial.seed,
                                trial.hyper.learning_rate, trial.hyper.dropout));
      if (i % 2 == 1) {
        search.report(completed(open.front(), landscape(open.front().graph)));
        open.erase(open.begin());
      }
    }
    return log;
  };
  EXPECT_EQ(run(4), run(4));
  EXPECT_NE(run(4), run(5));
}

TEST(Search, ChildrenNameTheirParentAndDescendFromGoodOnes) {
  Search search(small_resnet(), options_with(6));
  std::map<std::uint64_t, double> quality;
  std::vector<double> parents, all;
  for (int i = 0; i < 150; ++i) {
    const Trial trial = search.propose();
    if (trial.parent) parents.push_back(quality.at(*trial.parent));
    quality[trial.id] = landscape(trial.graph);
    all.push_back(quality[trial.id]);
    search.report(completed(trial, quality[trial.id]));
  }
  EXPECT_GE(parents.size(), 125u);
  EXPECT_GT(median(parents), median(all));
}

double best_of_search(std::uint64_t seed, int evaluations) {
  Search search(small_resnet(), options_with(seed));
  double best = 0.0;
  for (int i = 0; i < evaluations; ++i) {
    const Trial trial = search.propose();
    const double quality = landscape(trial.graph);
    best = std::max(best, quality);
    search.report(completed(trial, quality));
  }
  return best;
}

/// Morph chains of random length from the initial graph.
double best_of_random(std::uint64_t seed, int evaluations) {
  const ModelGraph initial = architecture_of(small_resnet());
  const MorphLimits limits = limits_for(options_with(seed).space, initial);
  RandomStream random(seed);
  double best = 0.0;
  for (int i = 0; i < evaluations; ++i) {
    ModelGraph graph = initial;
    for (std::uint64_t length = 1 + random.below(8); length > 0; --length) {
      auto morphed = random_morph(graph, limits, random);
      if (morphed) graph = std::move(morphed->graph);
    }
    best = std::max(best, landscape(graph));
  }
  return best;
}

TEST(Search, BeatsRandomSearchOnASyntheticLandscape) {
  std::vector<double> evolved, random;
  for (std::uint64_t seed = 1; seed <= 11; ++seed) {
    evolved.push_back(1.0 - best_of_search(seed, 120));
    random.push_back(1.0 - best_of_random(seed, 120));
  }
  RecordProperty("evolved_regret", std::to_string(median(evolved)));
  RecordProperty("random_regret", std::to_string(median(random)));
  EXPECT_LT(2 * median(evolved), median(random));
}

TEST(Search, LearnsHyperParametersOnTheWay) {
  Search search(tiny_classifier(), options_with(3));
  int near = 0;
  for (int i = 0; i < 120; ++i) {
    const Trial trial = search.propose();
    const double distance = std::abs(std::log10(trial.hyper.learning_rate / 0.02));
    near += i >= 60 && distance < 0.25;
    search.report(completed(trial, 1.0 - 0.3 * distance));
  }
  // A log-uniform draw falls this near in a fifth of the cases.
  EXPECT_GT(near, 27);
}

TEST(Search, FailedAndDivergedTrialsNeverBecomeParentsWhileOthersLive) {
  SearchOptions options = options_with(8);
  options.tournament = 60;  // surely meets a member that lives
  Search search(small_resnet(), options);
  std::set<std::uint64_t> broken;
  for (int i = 0; i < 120; ++i) {
    const Trial trial = search.propose();
    if (trial.parent) {
      EXPECT_EQ(broken.count(*trial.parent), 0u);
    }
    TrialOutcome outcome = completed(trial, 0.9);
    if (i % 3 == 0) {
      outcome.state = i % 2 == 0 ? TrialState::failed : TrialState::diverged;
      broken.insert(trial.id);
    }
    search.report(outcome);
  }
}

/// Replays 60 trials of a search into a new one and holds the next 30 proposals of both together.
void expect_restored_alike(const SearchOptions& options) {
  Search original(small_resnet(), options);
  std::vector<HistoryEntry> history;
  for (int i = 0; i < 60; ++i) {
    const Trial trial = original.propose();
    TrialOutcome outcome = completed(trial, landscape(trial.graph));
    if (i % 7 == 3) outcome.state = TrialState::failed;
    if (i % 11 == 5) outcome.state = TrialState::truncated;
    original.report(outcome);
    history.push_back({trial, outcome});
  }
  Search restored(small_resnet(), options);
  restored.restore(history);
  for (int i = 0; i < 30; ++i) {
    const Trial a = original.propose(), b = restored.propose();
    ASSERT_EQ(a.id, b.id);
    EXPECT_EQ(a.morph, b.morph);
    EXPECT_EQ(graph_to_text(a.graph), graph_to_text(b.graph));
    EXPECT_EQ(a.hyper, b.hyper);
    EXPECT_EQ(a.seed, b.seed);
    original.report(completed(a, 0.5));
    restored.report(completed(b, 0.5));
  }
}

TEST(Search, RestoredHistoryContinuesAsIfNothingHadHappened) {
  expect_restored_alike(options_with(9));
}

// Where parents have reached the limits, which is found out by trying.
TEST(Search, RestoredHistoryContinuesAlikeAtTheLimits) {
  SearchOptions options = options_with(9);
  options.space.max_ops_ratio = 1.3;
  expect_restored_alike(options);
}

TEST(Search, TrialsWithoutOutcomeAreNotRepeatedEither) {
  Search first(small_resnet(), options_with(10));
  std::vector<HistoryEntry> history;
  for (int i = 0; i < 10; ++i) history.push_back({first.propose(), std::nullopt});
  Search second(small_resnet(), options_with(10));
  second.restore(history);
  const Trial next = second.propose();
  EXPECT_EQ(next.id, 10u);
  for (const HistoryEntry& entry : history) {
    EXPECT_NE(architecture_of(entry.trial.graph).hash(), architecture_of(next.graph).hash());
  }
}

TEST(Search, RefusesAHistoryWithOneArchitectureTwice) {
  Search first(small_resnet(), options_with(1));
  const Trial trial = first.propose();
  Search second(small_resnet(), options_with(1));
  EXPECT_THROW(second.restore(std::vector<HistoryEntry>{{trial, {}}, {trial, {}}}), UserError);
}

TEST(Search, SaysWhenTheSpaceIsExhausted) {
  SearchOptions options = options_with(1);
  options.space.max_width = 6;
  options.space.max_layers = 3;
  options.space.min_spatial_size = 9;  // only widening is left: 4 → 6
  Search search(tiny_classifier(), options);
  search.propose();
  std::size_t proposed = 1;
  try {
    for (; proposed < 50; ++proposed) search.propose();
    FAIL() << "no end after " << proposed;
  } catch (const UserError& error) {
    EXPECT_LE(proposed, 4u);
    EXPECT_NE(std::string(error.what()).find("no further architecture"), std::string::npos);
  }
  EXPECT_GT(search.statistics().duplicates, 0u);
}

TEST(Search, TenThousandProposalsCostNoMoreAtTheEndThanBefore) {
  SearchOptions options = options_with(12);
  options.space.max_layers = 5;
  options.tpe.candidates = 4;
  options.tpe.history_limit = 64;
  Search search(tiny_classifier(), options);
  RandomStream random(1);
  constexpr int window = 2000, windows = 5;
  std::uint64_t morphs = 0;
  std::set<std::string> proposed;
  std::vector<std::uint64_t> morphs_per_window;
  for (int w = 0; w < windows; ++w) {
    for (int i = 0; i < window; ++i) {
      const Trial trial = search.propose();
      proposed.insert(architecture_of(trial.graph).hash());
      search.report(completed(trial, random.unit()));
    }
    morphs_per_window.push_back(search.statistics().morphs - morphs);
    morphs = search.statistics().morphs;
  }
  EXPECT_EQ(search.statistics().proposals, 10000u);
  EXPECT_EQ(proposed.size(), 10000u);
  EXPECT_LT(morphs_per_window.back(), 4 * morphs_per_window.front());
}

TEST(Search, RefusesWhatItCannotSearch) {
  ModelGraph headless;
  headless.add("input", Input{InputKind::images, 3, 8, 8, 0}, {});
  EXPECT_THROW(Search(headless, {}), Error);
  SearchOptions options;
  options.population = 0;
  EXPECT_THROW(Search(small_resnet(), options), Error);
  options = {};
  options.space.max_layers = 3;
  EXPECT_THROW(Search(small_resnet(), options), Error);
  Search search(small_resnet(), {});
  TrialOutcome unknown;
  unknown.id = 77;
  EXPECT_THROW(search.report(unknown), Error);
}

}  // namespace
}  // namespace heteroperf
