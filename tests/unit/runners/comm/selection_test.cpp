#include "runners/comm/selection/selection.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/comm/cost_models.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t no_limit = ~std::uint64_t{0};

SelectionRule rule(Algorithm algorithm, std::uint64_t first, std::uint64_t last) {
  return {algorithm, Bytes(first), Bytes(last)};
}

TEST(ParseSelection, ANameCoversEverySize) {
  for (const Algorithm algorithm : all_algorithms()) {
    EXPECT_EQ(parse_selection(to_string(algorithm)), std::vector{rule(algorithm, 0, no_limit)});
  }
  EXPECT_TRUE(parse_selection("auto").empty());
}

TEST(ParseSelection, RangesHaveBinaryUnitsAndBothEnds) {
  const std::vector expected{rule(Algorithm::recursive_doubling, 0, 8192),
                             rule(Algorithm::ring, 8193, no_limit)};
  EXPECT_EQ(parse_selection("recursive_doubling:0-8K;ring:8193-max"), expected);
  EXPECT_EQ(parse_selection(" ring : 8193 - max ; recursive_doubling:0-8k "), expected);
  EXPECT_EQ(parse_selection("tree:1M-2G;leader:3G-3G"),
            (std::vector{rule(Algorithm::tree, 1ULL << 20, 2ULL << 30),
                         rule(Algorithm::leader, 3ULL << 30, 3ULL << 30)}));
}

struct BadSelection {
  const char* text;
  std::vector<const char*> words;  ///< one per problem
};

TEST(ParseSelection, NamesEveryProblem) {
  const BadSelection cases[] = {
      {"", {"empty part"}},
      {"ring:0-8;", {"empty part"}},
      {"rign", {"ring"}},
      {"ring:", {"not a range"}},
      {"ring:8", {"not a range"}},
      {"ring:0-8-9", {"not a range"}},
      {"ring:-8", {"not a range"}},
      {"ring:0-8X", {"not a range"}},
      {"ring:K-8K", {"not a range"}},
      {"ring:0-18446744073709551616", {"not a range"}},
      {"ring:0-18446744073709551615K", {"not a range"}},
      {"ring:9-8", {"is empty"}},
      {"ring:0-8K;tree:8K-9K", {"overlap"}},
      {"ring;tree", {"overlap"}},
      {"ring:0-9;tree:1-2;leader:3-4", {"overlap", "overlap"}},
      {"rign:0-8;;tree:9-3;ring:0-9;leader:5-20", {"ring", "empty part", "is empty", "overlap"}},
  };
  for (const BadSelection& bad : cases) {
    try {
      parse_selection(bad.text);
      ADD_FAILURE() << "accepted: " << bad.text;
    } catch (const UserError& error) {
      ASSERT_EQ(error.problems().size(), bad.words.size()) << bad.text << ": " << error.what();
      for (std::size_t i = 0; i < bad.words.size(); ++i) {
        EXPECT_NE(error.problems()[i].text().find(bad.words[i]), std::string::npos)
            << error.problems()[i].text();
      }
    }
  }
}

TEST(SelectAllReduce, TheFastestByTheModel) {
  RandomStream random(13);
  for (int round = 0; round < 200; ++round) {
    const CostModel model = random_model(random);
    const CallShape call{Bytes(random.below(std::uint64_t{64} << 20)), WireFormat::fp32, Bytes(0)};
    const Choice choice = select_all_reduce({}, model, call);
    int candidates = 0;
    for (const Algorithm algorithm : all_algorithms()) {
      if (!runs_on(algorithm, model)) {
        EXPECT_NE(choice.algorithm, algorithm);
        continue;
      }
      ++candidates;
      CallShape shape = call;
      shape.segment = best_segment(model, algorithm, call);
      const Seconds time = predict_all_reduce(model, algorithm, shape);
      EXPECT_LE(*choice.predicted, time) << to_string(algorithm);
      if (algorithm == choice.algorithm) {
        EXPECT_EQ(*choice.predicted, time);
        EXPECT_EQ(choice.segment, shape.segment);
      }
    }
    EXPECT_EQ(choice.reason, fmt::format("fastest of {} by the model", candidates));
  }
}

TEST(SelectAllReduce, OfEqualsTheFirst) {
  CostModel model = constant_model({1});
  model.native = LinkCurve();  // all are free with one rank
  EXPECT_EQ(select_all_reduce({}, model, {Bytes(1024)}).algorithm, Algorithm::native);
  model = constant_model({2, 2});
  model.native = line(1, 1);
  // One bridge each: both do the same.
  model.corrections = {{Algorithm::recursive_doubling, Bytes(1), 1e6},
                       {Algorithm::ring, Bytes(1), 1e6},
                       {Algorithm::segmented_ring, Bytes(1), 1e6},
                       {Algorithm::rabenseifner, Bytes(1), 1e6},
                       {Algorithm::tree, Bytes(1), 1e6}};
  const CallShape call{Bytes(1 << 20), WireFormat::fp32, Bytes(65536)};
  EXPECT_EQ(predict_all_reduce(model, Algorithm::leader, call),
            predict_all_reduce(model, Algorithm::split_rail, call));
  EXPECT_EQ(select_all_reduce({}, model, call).algorithm, Algorithm::leader);
}

TEST(SelectAllReduce, RulesComeFirst) {
  const auto rules = parse_selection("tree:0-1K;ring:2K-max");
  CostModel model = constant_model({4});
  Choice choice = select_all_reduce(rules, model, {Bytes(1024)});
  EXPECT_EQ(choice.algorithm, Algorithm::tree);
  EXPECT_EQ(choice.reason, "forced by rule");
  EXPECT_TRUE(choice.predicted.has_value());
  EXPECT_EQ(choice.segment, Bytes(65536));
  EXPECT_EQ(select_all_reduce(rules, model, {Bytes(1025)}).reason, "fastest of 6 by the model");
  choice = select_all_reduce(rules, std::nullopt, {Bytes(2048), WireFormat::fp32, Bytes(0)});
  EXPECT_EQ(choice.algorithm, Algorithm::ring);
  EXPECT_EQ(choice.segment, Bytes(65536));
  EXPECT_FALSE(choice.predicted.has_value());
}

TEST(SelectAllReduce, NativeWithoutRuleAndModel) {
  const Choice choice = select_all_reduce(parse_selection("ring:0-8"), std::nullopt, {Bytes(9)});
  EXPECT_EQ(choice.algorithm, Algorithm::native);
  EXPECT_FALSE(choice.predicted.has_value());
}

TEST(SelectAllReduce, OnlyBridgesEncode) {
  const CostModel model = constant_model({2, 2});
  for (const Algorithm algorithm : all_algorithms()) {
    const auto rules = parse_selection(to_string(algorithm));
    const Choice choice = select_all_reduce(rules, model, {Bytes(1 << 20), WireFormat::int8});
    EXPECT_EQ(choice.wire, uses_bridges(algorithm) ? WireFormat::int8 : WireFormat::fp32)
        << to_string(algorithm);
  }
}

TEST(SelectAllReduce, OneClusterHasNoLeader) {
  const CostModel model = constant_model({4});
  for (const char* text : {"leader", "split_rail"}) {
    EXPECT_THROW(select_all_reduce(parse_selection(text), model, {Bytes(1)}), UserError);
  }
}

TEST(Selector, RemembersWhatSelectAllReduceSays) {
  RandomStream random(17);
  const auto rules = parse_selection("tree:0-100");
  const CostModel model = random_model(random);
  Selector selector(rules, model);
  for (int round = 0; round < 2000; ++round) {
    const CallShape call{Bytes(random.below(200)),
                         random.below(2) == 0 ? WireFormat::fp32 : WireFormat::bf16,
                         Bytes(random.below(2) * 65536)};
    const Choice fresh = select_all_reduce(rules, model, call);
    const Choice& kept = selector.choose(call);
    ASSERT_EQ(kept.algorithm, fresh.algorithm);
    ASSERT_EQ(kept.segment, fresh.segment);
    ASSERT_EQ(kept.predicted, fresh.predicted);
    ASSERT_EQ(kept.reason, fresh.reason);
    ASSERT_EQ(kept.wire, fresh.wire);
  }
}

}  // namespace
}  // namespace heteroperf
