#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "metrics/base/error.hpp"
#include "results/text/number_text.hpp"
#include "tests/unit/results/rank_fixture.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_F(RankTest, NamesCannotBreakOutOfAnyForm) {
  store({.number = 1, .host = "<script>alert('x')</script>,&"});
  const RankingReport ranking = ranked();
  const std::string html = ranking_text(ranking, DocumentForm::html);
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
  const std::string csv = ranking_text(ranking, DocumentForm::csv);
  EXPECT_NE(csv.find("\"<script>alert('x')</script>,&\""), std::string::npos);
  const Json json = Json::parse(ranking_text(ranking, DocumentForm::json));
  EXPECT_EQ(json.at("entries").at(0).at("name"), "<script>alert('x')</script>,&");
}

TEST_F(RankTest, ColumnsAreFrozen) {
  store({.number = 1});
  const std::string csv = ranking_text(ranked(), DocumentForm::csv);
  EXPECT_EQ(
      csv.substr(0, csv.find('\n')),
      "workload,rank,shared,name,ops_per_second,ci95_low,ci95_high,convention,ops_per_peak,"
      "regulated_score,quality,validity,ruleset,size,precision,ranks,devices,kind,hsr,"
      "scaling_efficiency,repeats,reproducibility,program_version,created_utc,run_id,"
      "record_sha256,ops_per_watt,power,power_level,nodes,availability,threads,transport,plan,"
      "interval,run_ids,state,remark,error_basis");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
  const Json entry = Json::parse(ranking_text(ranked(), DocumentForm::json)).at("entries").at(0);
  for (const char* key :
       {"rank", "shared", "name", "ops_per_second", "ci95", "validity", "scale"}) {
    EXPECT_TRUE(entry.contains(key)) << key;
  }
  EXPECT_EQ(unstated_keys(ranking_document(ranked())), std::vector<std::string>());
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
  const Json entry = Json::parse(ranking_text(ranking, DocumentForm::json)).at("entries").at(0);
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

TEST_F(RankTest, WhatTellsEntriesOfOneHostApartIsShown) {
  store({.number = 1, .commit = "0123456789abcdef"});
  EXPECT_EQ(ranking_text(ranked(), DocumentForm::console).find("0123456789ab"), std::string::npos);
  store({.number = 2, .commit = "fedcba"});
  SampleRun planned = sample_of({.number = 3, .commit = "fedcba"});
  planned.last<PlanEvent>().summary = "pp 2 x tp 1 x dp 1";
  planned.write_finished(RunFiles{path() / "3"});
  const std::string text = ranking_text(ranked(), DocumentForm::console);
  for (const char* shown : {"0123456789ab  ", "fedcba  ", "pp 2 x tp 1 x dp 1, 1f1b"}) {
    EXPECT_NE(text.find(shown), std::string::npos) << text;
  }
}

TEST_F(RankTest, TheOrderingValueIsShown) {
  store({.number = 1, .step_s = 12});
  for (const RankKey key : {RankKey::regulated, RankKey::ops_per_device}) {
    const RankingReport ranking = ranked(key);
    const std::string by = with_prefix(ranking.lists.at(0).entries.at(0).by, operations_unit);
    const std::string text = ranking_text(ranking, DocumentForm::console);
    EXPECT_NE(text.find(by), std::string::npos) << text;
    EXPECT_NE(text.find(std::string(to_string(key)) + " "), std::string::npos) << text;
  }
}

TEST_F(RankTest, AnIntervalOfTooFewRunsIsSaidToBeNone) {
  store({.number = 1, .step_s = 12, .seed = 1});
  store({.number = 2, .step_s = 30, .seed = 2});
  const RankingReport ranking = ranked();
  const Interval& ci95 = *ranking.lists.at(0).entries.at(0).ops_ci95;
  EXPECT_GT(ci95.high / ci95.low, 100);
  for (const std::string& text :
       {ranking_text(ranking, DocumentForm::console), ranking_text(ranking, DocumentForm::html)}) {
    EXPECT_NE(text.find("2 runs: no useful interval"), std::string::npos) << text;
    EXPECT_EQ(text.find("±"), std::string::npos);
  }
  const Json json = Json::parse(ranking_text(ranking, DocumentForm::json));
  EXPECT_EQ(json.at("entries").at(0).at("ci95").at(1), ci95.high);
}

TEST_F(RankTest, PagesAreForReadersAndTablesForPrograms) {
  store({.number = 1});
  const RankingReport ranking = ranked();
  const RankEntry& entry = ranking.lists.at(0).entries.at(0);
  const std::string html = ranking_text(ranking, DocumentForm::html),
                    csv = ranking_text(ranking, DocumentForm::csv);
  const std::string sha256 = entry.run->record_sha256;
  EXPECT_NE(csv.find(sha256), std::string::npos);
  EXPECT_NE(html.find("title=\"" + sha256 + "\">" + sha256.substr(0, 12) + "<"), std::string::npos);
  EXPECT_NE(html.find(">" + with_prefix(entry.ops_per_second, operations_unit)), std::string::npos);
}

TEST_F(RankTest, NamesCannotForgeLines) {
  store({.number = 1, .host = "n\\u001b[31m\\nexcluded x"});
  const fs::path torn = path() / "evil\nname\xff\x1b[2J";
  fs::create_directories(torn);
  std::ofstream(torn / "record.json") << "{";
  const std::string text = ranking_text(ranked(), DocumentForm::console);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  EXPECT_EQ(text.find("\nexcluded x"), std::string::npos);
  EXPECT_EQ(text.find("\nname"), std::string::npos);
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
  EXPECT_THROW(parse_value_name<SystemAvailability>("availability", "soon"), UserError);
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
  ranking.excluded.push_back({"a/record.json", "image", "run-7", {"no score", "class open"}});
  const std::string csv = ranking_text(ranking, DocumentForm::csv);
  const auto columns = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  std::istringstream lines(csv);
  std::string header, excluded, published;
  std::getline(lines, header);
  std::getline(lines, published);
  std::getline(lines, excluded);
  EXPECT_EQ(columns(published), columns(header));
  EXPECT_EQ(columns(excluded), columns(header));
  EXPECT_NE(published.find(",aiperf,"), std::string::npos);
  EXPECT_NE(published.find(",published,counted by AIPerf"), std::string::npos);
  EXPECT_NE(excluded.find(",excluded,no score; class open"), std::string::npos);
  for (const std::string& text :
       {ranking_text(ranking, DocumentForm::console), ranking_text(ranking, DocumentForm::html)}) {
    EXPECT_NE(text.find("regulated 1.5 Top/s"), std::string::npos) << text;
  }
  EXPECT_EQ(
      Json::parse(ranking_text(ranking, DocumentForm::json)).at("published").at(0).at("comparable"),
      false);
  std::ofstream(file) << "!!! Test failed due to low accuracy !!!\nFinal Score : 2 GFLOPS\n";
  EXPECT_NE(read_aiperf_results(file).remark.find("failed"), std::string::npos);
  for (const std::string& score_text :
       {std::string("many"), std::string("inf"), std::string("1e999"), std::string("-1"),
        std::string("0x10"), std::string("1 2"), std::string(100'000, '9')}) {
    std::ofstream(file) << "Final Score : " << score_text << " GFLOPS\n";
    EXPECT_THROW(read_aiperf_results(file), UserError) << score_text.substr(0, 20);
  }
}

}  // namespace
}  // namespace heteroperf
