#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/results/rank_fixture.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_F(RankTest, OrderAndSharedRanks) {
  store({.number = 1, .step_s = 15, .host = "b"});
  store({.number = 2, .step_s = 16, .host = "c"});  // outside b's interval, as runs of one may be
  store({.number = 3, .step_s = 11, .host = "a"});
  store({.number = 4, .step_s = 40, .host = "d"});
  const RankingReport ranking = ranked();
  ASSERT_EQ(ranking.lists.size(), 1u);
  const auto& entries = ranking.lists[0].entries;
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_TRUE(ranking.excluded.empty());
  std::vector<std::string> order;
  for (const RankEntry& entry : entries) order.push_back(entry.name + std::to_string(entry.rank));
  EXPECT_EQ(order, (std::vector<std::string>{"a1", "b2", "c2", "d4"}));
  EXPECT_FALSE(entries[0].shared);
  EXPECT_TRUE(entries[1].shared);
  EXPECT_TRUE(entries[2].shared);
  EXPECT_FALSE(entries[3].shared);
}

TEST_F(RankTest, RepeatedRunsAreToldApartByLessThanSingleOnes) {
  for (int i = 0; i < 3; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    store({.number = i, .step_s = 12 + 0.01 * i, .seed = seed, .host = "fast"});
    store({.number = 10 + i, .step_s = 13 + 0.01 * i, .seed = seed, .host = "slow"});
  }
  store({.number = 20, .step_s = 14, .host = "once"});
  const auto entries = ranked().lists.at(0).entries;
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "fast");
  EXPECT_FALSE(entries[0].shared);
  EXPECT_EQ(entries[1].rank, 2u);
  EXPECT_EQ(entries[2].rank, 2u);  // one run, 8 % behind
  EXPECT_EQ(entries[2].basis, IntervalBasis::within_runs);
}

TEST_F(RankTest, EntriesWithoutAnIntervalShareARankAndSaySo) {
  for (const auto& [number, step_s] :
       {std::pair(1, 11.0), std::pair(2, 40.0), std::pair(3, 200.0)}) {
    store({.number = number, .step_s = step_s, .host = std::to_string(number)});
  }
  RunSet runs = find_runs({path()});
  for (RunDigest& run : runs.runs) {
    if (run.host != "2") run.metrics[metric_place("ops_per_second")]->ci95.reset();
  }
  const RankingReport ranking = rank_runs(std::move(runs), RankKey::ops);
  for (const RankEntry& entry : ranking.lists.at(0).entries) {
    EXPECT_EQ(entry.rank, 1u);
    EXPECT_TRUE(entry.shared);
    EXPECT_EQ(entry.basis == IntervalBasis::none, entry.name != "2");
  }
  const std::string text = ranking_text(ranking, DocumentForm::console);
  EXPECT_NE(text.find("1, no interval"), std::string::npos) << text;
  EXPECT_EQ(
      Json::parse(ranking_text(ranking, DocumentForm::json)).at("entries").at(0).at("interval"),
      "none");
}

TEST_F(RankTest, ErrorsThatAreKnownUnlikeWellDoNotCompare) {
  const auto store_evaluated = [&](int number, std::uint64_t samples, double accuracy) {
    SampleRun run = sample_of({.number = number, .host = std::to_string(number)});
    auto& evaluation = run.last<EvalEvent>();
    evaluation.samples = samples;
    evaluation.accuracy = accuracy;
    evaluation.ops_strict = strict_forward_ops(fixed_classifier(), samples);
    run.write_finished(RunFiles{path() / std::to_string(number)});
  };
  store_evaluated(1, 1000, 0.9);
  store_evaluated(2, 2000, 0.95);
  store_evaluated(3, 400, 0.8);  // 80 wrong answers, of all that there are
  EXPECT_EQ(ranked(RankKey::ops).lists.size(), 1u);
  const RankingReport ranking = ranked(RankKey::regulated);
  EXPECT_TRUE(ranking.excluded.empty());
  ASSERT_EQ(ranking.lists.size(), 2u);
  EXPECT_EQ(ranking.lists[0].entries.size(), 2u);
  EXPECT_EQ(ranking.lists[0].error_basis, "100 wrong answers");
  EXPECT_EQ(ranking.lists[1].error_basis, "400 answers");
  EXPECT_EQ(ranking.lists[1].entries.at(0).rank, 1u);
  for (const std::string& text :
       {ranking_text(ranking, DocumentForm::console), ranking_text(ranking, DocumentForm::html)}) {
    EXPECT_NE(text.find("image, errors known by 100 wrong answers"), std::string::npos) << text;
  }
  const Json entries = Json::parse(ranking_text(ranking, DocumentForm::json)).at("entries");
  EXPECT_EQ(entries.at(2).at("error_basis"), "400 answers");
}

TEST_F(RankTest, EqualScoresGoByTheEarlierDate) {
  store({.number = 5, .host = "later"});
  store({.number = 4, .host = "earlier"});
  EXPECT_EQ(ranked().lists[0].entries[0].name, "earlier");
}

TEST_F(RankTest, EveryExcludedRecordHasItsReason) {
  store({.number = 1});
  SampleRun quick = sample_of({.number = 2});
  quick.last<StartEvent>().quick = true;
  quick.write_finished(RunFiles{path() / "quick"});
  const RunFiles edited{store({.number = 3})};
  edit_file(edited.record(), "\"value\": ", "\"value\": 9");
  const RunFiles lonely{store({.number = 4})};
  fs::remove(lonely.journal());
  const RunFiles torn{store({.number = 5})};
  std::ofstream(torn.record()) << "{\"_format\":";
  SampleRun failed = sample_of({.number = 6});
  failed.last<StopEvent>() = {RunStatus::failed, "rank 1 died", 6};
  failed.write_finished(RunFiles{path() / "failed"});
  store({.number = 7});  // the seed of run 1 again
  const RankingReport ranking = ranked();
  ASSERT_EQ(ranking.lists.size(), 1u);
  EXPECT_EQ(ranking.lists[0].entries.size(), 1u);
  EXPECT_EQ(ranking.excluded.size(), 6u);
  const std::string text = ranking_text(ranking, DocumentForm::console);
  for (const char* reason : {"class open", "quick", "not what was measured", "no journal",
                             "not valid JSON", "status failed", "same seed"}) {
    EXPECT_NE(text.find(reason), std::string::npos) << reason;
  }
}

TEST_F(RankTest, RepetitionsMakeOneEntry) {
  for (int i = 0; i < 4; ++i) {
    store({.number = i, .step_s = 12 + 0.1 * i, .seed = static_cast<std::uint64_t>(i)});
  }
  const RankEntry entry = ranked().lists[0].entries.at(0);
  EXPECT_EQ(entry.runs.size(), 4u);
  ASSERT_TRUE(entry.ops_ci95.has_value());
  EXPECT_LT(entry.ops_ci95->low, entry.ops_per_second);
}

TEST_F(RankTest, ARowIsTheMeanOfItsRepetitions) {
  for (const int i : {1, 2}) {
    SampleRun run =
        sample_of({.number = i, .step_s = 12.0 * i, .seed = static_cast<std::uint64_t>(i)});
    run.write_finished(RunFiles{path() / std::to_string(i)});
  }
  const RunSet runs = find_runs({path()});
  const RunDigest &a = runs.runs.at(0), &b = runs.runs.at(1);
  for (const RankKey key : {RankKey::ops, RankKey::ops_per_peak, RankKey::regulated}) {
    const RankEntry entry = ranked(key).lists.at(0).entries.at(0);
    EXPECT_NEAR(
        *entry.ops_per_peak / std::sqrt(*a.number("utilization") * *b.number("utilization")), 1,
        1e-12);
    const double regulated = std::sqrt(*a.number("regulated_score") * *b.number("regulated_score"));
    EXPECT_NEAR(*entry.regulated_score / regulated, 1, 1e-12);
    const double by = key == RankKey::ops            ? entry.ops_per_second
                      : key == RankKey::ops_per_peak ? *entry.ops_per_peak
                                                     : *entry.regulated_score;
    EXPECT_EQ(entry.by, by);
  }
  const Json entry = Json::parse(ranking_text(ranked(), DocumentForm::json)).at("entries").at(0);
  ASSERT_EQ(entry.at("runs").size(), 2u);
  EXPECT_EQ(entry.at("runs").at(0).at("run_id"), "run-001");
  EXPECT_EQ(entry.at("runs").at(1).at("record_sha256"), b.record_sha256);
  EXPECT_NE(ranking_text(ranked(), DocumentForm::csv).find(",run-001 run-002"), std::string::npos);
}

TEST_F(RankTest, OtherPlansTransportsAndConfigurationsAreNoRepetitions) {
  const auto store_as = [&](int number, std::uint64_t seed, const auto& change) {
    SampleRun run = sample_of({.number = number, .seed = seed});
    run.last<ConfigEvent>().config.text = R"({"batch":{"micro_batch":1},"seed":)" +
                                          std::to_string(seed) + R"(,"out":"run-)" +
                                          std::to_string(number) + "\"}";
    change(run);
    run.write_finished(RunFiles{path() / std::to_string(number)});
  };
  store_as(1, 1, [](SampleRun&) {});
  store_as(2, 2, [](SampleRun&) {});
  store_as(3, 1, [](SampleRun& run) { run.last<PlanEvent>().summary = "pp 2 x tp 1 x dp 1"; });
  store_as(4, 2, [](SampleRun& run) { run.last<ScaleEvent>().transport = "mpi"; });
  store_as(5, 1, [](SampleRun& run) {
    run.last<ConfigEvent>().config.text = R"({"batch":{"micro_batch":4},"seed":1})";
  });
  const RankingReport ranking = ranked();
  EXPECT_TRUE(ranking.excluded.empty());
  std::multiset<std::size_t> sizes;
  for (const RankEntry& entry : ranking.lists.at(0).entries) sizes.insert(entry.runs.size());
  EXPECT_EQ(sizes, (std::multiset<std::size_t>{1, 1, 1, 2}));
}

TEST_F(RankTest, ScalingAgainstTheSmallestRunOfTheSameSystem) {
  const std::string model = R"(,"cpu":{"model":"A","sockets":1,"logical_cpus":8}})";
  const auto store_on_model = [&](int number, const std::string& host, const std::string& cpu,
                                  const std::vector<DeviceCount>& devices, double step_s) {
    SampleRun run = sample_of({.number = number, .step_s = step_s, .host = host});
    run.last<SystemEvent>().system.text = R"({"host":{"value":")" + host + "\"}" + cpu;
    run.last<ScaleEvent>().devices = devices;
    run.write_finished(RunFiles{path() / std::to_string(number)});
  };
  const std::string other = R"(,"cpu":{"model":"B","sockets":1,"logical_cpus":8}})";
  store_on_model(1, "small", model, {{"cpu", 2}}, 12);
  store_on_model(2, "large", model, {{"cpu", 4}}, 10);
  store_on_model(3, "foreign", other, {{"cpu", 8}}, 40);
  store_on_model(4, "threads", model, {{"cpu", 8, 4}}, 11);
  store_on_model(5, "nameless", "}", {{"cpu", 16}}, 50);
  store_on_model(6, "mixed", model, {{"gpu", 1}, {"cpu", 1}}, 16);
  store_on_model(7, "mixed4", model, {{"gpu", 2}, {"cpu", 2}}, 10);
  store_on_model(8, "mixed5", model, {{"gpu", 4}, {"cpu", 1}}, 10);
  const RankingReport report = ranked();
  for (const RankEntry& entry : report.lists.at(0).entries) {
    EXPECT_EQ(entry.heterogeneous, entry.name.starts_with("mixed"));
    const bool has_smaller = entry.name == "large" || entry.name == "mixed4";
    ASSERT_EQ(entry.scaling_efficiency.has_value(), has_smaller) << entry.name;
    if (!has_smaller) continue;
    EXPECT_NEAR(*entry.scaling_efficiency, entry.name == "large" ? 0.6 : 0.8, 1e-3) << entry.name;
  }
}

TEST_F(RankTest, AnotherModelOfGpuIsAnotherSystem) {
  const auto store_with = [&](int number, std::uint32_t count, const std::string& model) {
    SampleRun run = sample_of({.number = number,
                               .step_s = 48.0 / count,
                               .seed = static_cast<std::uint64_t>(number),
                               .gpus = std::vector<std::string>(count, model)});
    run.last<ScaleEvent>().devices = {{"gpu", count}};
    run.write_finished(RunFiles{path() / std::to_string(number)});
  };
  const auto efficiencies = [&] {
    std::map<std::string, std::string> found;
    const RankingReport ranking = ranked();
    for (const RankEntry& entry : ranking.lists.at(0).entries) {
      const auto& value = entry.scaling_efficiency;
      found[entry.run->run_id] = value ? fmt::format("{:.2f}", *value) : "-";
    }
    std::string text;
    for (const auto& [run, value] : found) text += run + ' ' + value + ' ';
    return text;
  };
  store_with(1, 1, "NVIDIA A100");
  store_with(2, 2, "NVIDIA H200");
  EXPECT_EQ(efficiencies(), "run-001 - run-002 - ");
  store_with(3, 4, "NVIDIA H200");
  EXPECT_EQ(efficiencies(), "run-001 - run-002 - run-003 1.00 ");
  store_with(4, 1, "NVIDIA H200");  // no repetition of the first
  EXPECT_EQ(efficiencies(), "run-001 - run-002 1.00 run-003 1.00 run-004 - ");
}

TEST_F(RankTest, DevicesAreNamedWithTheirModelsWhereTheClassesDoNot) {
  const auto devices_of = [&](const std::vector<DeviceCount>& devices) {
    SampleRun run = sample_of({.gpus = {"NVIDIA H200"}});
    run.last<ScaleEvent>().devices = devices;
    run.write_finished(RunFiles{path() / "run"});
    return Json::parse(ranking_text(ranked(), DocumentForm::json))
        .at("entries")
        .at(0)
        .at("devices");
  };
  EXPECT_EQ(devices_of({{"gpu", 1}, {"cpu", 1}}), "1 x gpu + 1 x cpu (1 x NVIDIA H200)");
  EXPECT_NE(ranking_text(ranked(), DocumentForm::console).find("(1 x NVIDIA H200)"),
            std::string::npos);
  EXPECT_EQ(devices_of({{"NVIDIA H200", 1}}), "1 x NVIDIA H200");
}

TEST_F(RankTest, OrdersThatARecordLacksExcludeIt) {
  store({.number = 1});
  const RankingReport ranking = ranked(RankKey::hsr);
  EXPECT_TRUE(ranking.lists.empty());
  ASSERT_EQ(ranking.excluded.size(), 1u);
  EXPECT_EQ(ranking.excluded[0].reasons, (std::vector<std::string>{"has no hsr"}));
  EXPECT_EQ(ranked(RankKey::ops_per_peak).lists.size(), 1u);
  EXPECT_THROW(parse_rank_key("opps"), UserError);
}

TEST_F(RankTest, FiltersChooseWhatAListIsOf) {
  store(1, "a", {{"cpu", 2, 1, false}}, 12);
  store(2, "b", {{"cpu", 1, 1, false}, {"gpu", 7, 1, false}}, 12);
  const auto hosts = [&](const RankFilter& filter) {
    std::string names;
    const RankingReport ranking = rank_runs(find_runs({path()}), RankKey::ops, filter);
    for (const RankList& list : ranking.lists) {
      for (const RankEntry& entry : list.entries) names += entry.name;
    }
    return names + std::to_string(ranking.filtered);
  };
  EXPECT_EQ(hosts({.kind = "homogeneous"}), "a1");
  EXPECT_EQ(hosts({.kind = "heterogeneous"}), "b1");
  EXPECT_EQ(hosts({.fewest_devices = 3}), "b1");
  EXPECT_EQ(hosts({.most_devices = 7}), "a1");
  EXPECT_EQ(hosts({.precision = "fp64"}), "2");
  EXPECT_EQ(hosts({.workload = "none"}), "2");
}

TEST_F(RankTest, NodesAreTheHostsOfTheRanks) {
  store_on(2, {"n1", "n1"});
  store_on(3, {"n1", "n2", "n2", "n3"});
  const auto nodes = [&](const RankFilter& filter) {
    std::set<std::uint64_t> counts;
    const RankingReport ranking = rank_runs(find_runs({path()}), RankKey::ops, filter);
    for (const RankList& list : ranking.lists) {
      for (const RankEntry& entry : list.entries) counts.insert(entry.run->nodes);
    }
    return counts;
  };
  using Counts = std::set<std::uint64_t>;
  EXPECT_EQ(nodes({}), (Counts{1, 3}));
  EXPECT_EQ(nodes({.fewest_nodes = 1}), (Counts{1, 3}));
  EXPECT_EQ(nodes({.fewest_nodes = 2}), (Counts{3}));
  EXPECT_EQ(nodes({.most_nodes = 2}), (Counts{1}));
  EXPECT_EQ(nodes({.fewest_nodes = 3, .most_nodes = 3}), (Counts{3}));
  const Json all = Json::parse(ranking_text(ranked(), DocumentForm::json));
  for (const Json& entry : all.at("entries")) {
    const bool unknown = entry.at("run_id") == "run-001";
    EXPECT_EQ(entry.contains("nodes"), !unknown);
    EXPECT_EQ(entry.value("nodes", 0), unknown ? 0 : entry.at("run_id") == "run-002" ? 1 : 3);
  }
}

}  // namespace
}  // namespace heteroperf
