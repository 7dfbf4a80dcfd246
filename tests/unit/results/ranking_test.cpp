#include "results/ranking/ranking.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/error.hpp"
#include "results/run_folder.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class RankTest : public ::testing::Test {
 protected:
  fs::path store(const StoredRun& run) { return store_run(folder_.path(), run); }
  void store(int number, const std::string& host, const std::vector<DeviceCount>& devices,
             double step_s) {
    SampleRun run = sample_of({.number = number, .step_s = step_s, .host = host});
    run.last<ScaleEvent>().devices = devices;
    run.write_finished(RunFiles{folder_.path() / std::to_string(number)});
  }
  /// A run whose ranks were on these hosts; none: its record does not say.
  void store_on(int number, const std::vector<std::string>& hosts) {
    SampleRun run = sample_of({.number = number, .host = std::to_string(number)});
    Json system = Json::parse(run.last<SystemEvent>().system.text);
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      system["binding"].push_back({{"rank", rank}, {"host", hosts[rank]}});
    }
    run.last<SystemEvent>().system.text = system.dump();
    run.write_finished(RunFiles{folder_.path() / std::to_string(number)});
  }
  RankingReport ranked(RankKey key = RankKey::ops) const {
    return rank_runs(find_runs({folder_.path()}), key);
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(RankTest, OrderAndSharedRanks) {
  store({.number = 1, .step_s = 12, .host = "b"});
  store({.number = 2, .step_s = 12.001, .host = "c"});  // within the intervals of b
  store({.number = 3, .step_s = 10, .host = "a"});
  store({.number = 4, .step_s = 30, .host = "d"});
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
  const std::string text = ranking_console_text(ranking);
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
  EXPECT_EQ(entry.repeats, 4u);
  ASSERT_TRUE(entry.ops_ci95.has_value());
  EXPECT_LT(entry.ops_ci95->low, entry.ops_per_second);
}

TEST_F(RankTest, ScalingAgainstTheSmallestRunAndKinds) {
  store(1, "small", {{"gpu", 2}}, 12);
  store(2, "large", {{"gpu", 4}}, 10);
  store(3, "mixed", {{"gpu", 1}, {"cpu", 1}}, 16);
  const RankingReport ranking = ranked();
  for (const RankEntry& entry : ranking.lists[0].entries) {
    EXPECT_EQ(entry.heterogeneous, entry.name == "mixed");
    EXPECT_NEAR(*entry.scaling_efficiency, entry.name == "large" ? 0.6 : 1.0, 1e-3) << entry.name;
  }
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

TEST_F(RankTest, NamesCannotBreakOutOfAnyForm) {
  store({.number = 1, .host = "<script>alert('x')</script>,&"});
  const RankingReport ranking = ranked();
  const std::string html = ranking_html_text(ranking);
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  const std::string csv = ranking_csv_text(ranking);
  EXPECT_NE(csv.find("\"<script>alert('x')</script>,&\""), std::string::npos);
  const Json json = Json::parse(ranking_json_text(ranking));
  EXPECT_EQ(json.at("entries").at(0).at("name"), "<script>alert('x')</script>,&");
}

TEST_F(RankTest, ColumnsAreFrozen) {
  store({.number = 1});
  const std::string csv = ranking_csv_text(ranked());
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "workload,rank,shared,name,ops_per_second,ci95_low,ci95_high,convention,ops_per_peak,"
            "regulated_score,quality,validity,ruleset,size,precision,ranks,devices,kind,hsr,"
            "scaling_efficiency,repeats,reproducibility,program_version,created_utc,run_id,"
            "record_sha256,ops_per_watt,power,power_level,nodes,availability");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
  const Json entry = Json::parse(ranking_json_text(ranked())).at("entries").at(0);
  for (const char* key :
       {"rank", "shared", "name", "ops_per_second", "ci95", "validity", "scale"}) {
    EXPECT_TRUE(entry.contains(key)) << key;
  }
}

TEST_F(RankTest, PowerOfAMeterGivesOpsPerWatt) {
  store({.number = 1, .step_s = 12, .host = "fast"});
  store({.number = 2, .step_s = 24, .host = "thrifty"});
  store({.number = 3, .step_s = 12, .host = "unmeasured"});
  const fs::path file = path() / "power.csv";
  std::ofstream(file) << "run_id,watts,level\nrun-001,400,1\nrun-002,100,3\n";
  const RankingReport ranking =
      rank_runs(find_runs({path()}), RankKey::ops_per_watt, {}, {.power = read_power_table(file)});
  const auto& entries = ranking.lists.at(0).entries;
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "thrifty");
  EXPECT_NEAR(*entries[0].ops_per_watt, entries[0].ops_per_second / 100, 1);
  EXPECT_EQ(ranking.excluded.at(0).reasons, std::vector<std::string>{"has no ops_per_watt"});
  const Json entry = Json::parse(ranking_json_text(ranking)).at("entries").at(0);
  EXPECT_EQ(entry.at("power"), 100);
  EXPECT_EQ(entry.at("power_level"), "L3");
}

TEST_F(RankTest, RepetitionsCountAsMeasuredWhereAllAre) {
  store({.number = 1, .seed = 1});
  store({.number = 2, .seed = 2});
  PowerTable power{{"run-001", {100, PowerLevel::l3}}};
  EXPECT_FALSE(
      rank_runs(find_runs({path()}), RankKey::ops, {}, {.power = power}).lists[0].entries[0].power);
  power["run-002"] = {300, PowerLevel::l2};
  const RankingReport ranking = rank_runs(find_runs({path()}), RankKey::ops, {}, {.power = power});
  EXPECT_EQ(ranking.lists[0].entries[0].power->watts, 200);
  EXPECT_EQ(ranking.lists[0].entries[0].power->level, PowerLevel::l2);
}

TEST_F(RankTest, DamagedPowerTablesAreRefusedWithTheirLine) {
  const fs::path file = path() / "power.csv";
  for (const char* rows : {"", "id,w\n", "run_id,watts,level\na,1\n", "run_id,watts,level\na,0,1\n",
                           "run_id,watts,level\na,nan,1\n", "run_id,watts,level\na,1 W,1\n",
                           "run_id,watts,level\na,1,4\n", "run_id,watts,level\na,1,1\na,2,1\n"}) {
    std::ofstream(file) << rows;
    EXPECT_THROW(read_power_table(file), UserError) << rows;
  }
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
  store_on(1, {});
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
  EXPECT_EQ(nodes({}), (Counts{0, 1, 3}));
  EXPECT_EQ(nodes({.fewest_nodes = 1}), (Counts{1, 3}));
  EXPECT_EQ(nodes({.fewest_nodes = 2}), (Counts{3}));
  EXPECT_EQ(nodes({.most_nodes = 2}), (Counts{1}));
  EXPECT_EQ(nodes({.fewest_nodes = 3, .most_nodes = 3}), (Counts{3}));
  for (const Json& entry : Json::parse(ranking_json_text(ranked())).at("entries")) {
    const bool unknown = entry.at("run_id") == "run-001";
    EXPECT_EQ(entry.contains("nodes"), !unknown);
    EXPECT_EQ(entry.value("nodes", 0), unknown ? 0 : entry.at("run_id") == "run-002" ? 1 : 3);
  }
}

TEST_F(RankTest, AvailabilityIsWhatATableSays) {
  for (int i = 1; i <= 4; ++i) {
    store({.number = i,
           .seed = static_cast<std::uint64_t>(i),
           .host = i < 3 ? "twice" : std::to_string(i)});
  }
  const fs::path file = path() / "systems.csv";
  std::ofstream(file)
      << "run_id,availability\nrun-001,available\nrun-002,preview\nrun-003,research\n";
  const RankTables tables{.availability = read_availability_table(file)};
  const auto entries = [&](std::optional<SystemAvailability> only) {
    RankFilter filter;
    filter.availability = only;
    std::map<std::string, std::string> found;
    for (const RankList& list :
         rank_runs(find_runs({path()}), RankKey::ops, filter, tables).lists) {
      for (const RankEntry& entry : list.entries) {
        found[entry.name] = entry.availability ? to_string(*entry.availability) : "";
      }
    }
    return found;
  };
  using Found = std::map<std::string, std::string>;
  EXPECT_EQ(entries({}), (Found{{"twice", "preview"}, {"3", "research"}, {"4", ""}}));
  EXPECT_EQ(entries(SystemAvailability::available), (Found{{"twice", "available"}}));
  EXPECT_EQ(entries(SystemAvailability::research), (Found{{"3", "research"}}));
  EXPECT_THROW(parse_availability("soon"), UserError);
  for (const char* text :
       {"", "run_id,available\n", "run_id,availability\na\n", "run_id,availability\na,soon\n",
        "run_id,availability\na,preview,1\n", "run_id,availability\na,preview\na,research\n"}) {
    std::ofstream(file) << text;
    EXPECT_THROW(read_availability_table(file), UserError) << text;
  }
}

TEST_F(RankTest, AnAiperfResultIsListedWithoutARank) {
  const fs::path file = path() / "results.txt";
  std::ofstream(file)
      << "=====\nFinal Score : 1234.5 GFLOPS\nFinal Regulated Score : 1500 GFLOPS\n";
  const PublishedScore score = read_aiperf_results(file);
  EXPECT_EQ(score.ops_per_second, 1234.5e9);
  EXPECT_EQ(score.regulated, 1500e9);
  EXPECT_NE(score.remark.find("not comparable"), std::string::npos);
  RankingReport ranking = ranked();
  ranking.published.push_back(score);
  EXPECT_EQ(Json::parse(ranking_json_text(ranking)).at("published").at(0).at("comparable"), false);
  std::ofstream(file) << "!!! Test failed due to low accuracy !!!\nFinal Score : 2 GFLOPS\n";
  EXPECT_NE(read_aiperf_results(file).remark.find("failed"), std::string::npos);
  std::ofstream(file) << "Final Score : many GFLOPS\n";
  EXPECT_THROW(read_aiperf_results(file), UserError);
}

}  // namespace
}  // namespace heteroperf
