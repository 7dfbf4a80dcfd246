#include "runners/cluster/cluster_json.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <random>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/cluster/fake_root.hpp"
#include "tests/unit/runners/cluster/small_cluster.hpp"

namespace heteroperf {
namespace {

using test::complaint;
using test::FakeRoot;
using test::small_cluster;

std::filesystem::path sample(const char* name) {
  return std::filesystem::path(HETEROPERF_TEST_DATA) / "clusters" / name;
}

nlohmann::json document(const char* name) {
  return nlohmann::json::parse(std::ifstream(sample(name)));
}

std::string refusal(const nlohmann::json& json) {
  return complaint<UserError>([&] { cluster_from_json(json, "file.json"); });
}

bool json_says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_same(const Cluster& a, const Cluster& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.cards, b.cards);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.links, b.links);
  EXPECT_EQ(a.efficiency, b.efficiency);
  ASSERT_EQ(a.classes.size(), b.classes.size());
  for (std::size_t i = 0; i < a.classes.size(); ++i) {
    EXPECT_EQ(to_json(a).at("classes")[i], to_json(b).at("classes")[i]);
    EXPECT_EQ(a.classes[i].rates, b.classes[i].rates);
  }
}

/// Through text, as through a file.
Cluster back_and_forth(const Cluster& cluster) {
  return cluster_from_json(nlohmann::json::parse(to_json(cluster).dump()), "text");
}

TEST(ClusterJson, ReadsAFileWrittenByHand) {
  const Cluster cluster = read_cluster(sample("two_clusters.json"));
  ASSERT_EQ(cluster.ranks.size(), 4u);
  EXPECT_EQ(cluster.ranks[3].cluster, "b");
  EXPECT_EQ(cluster.classes[0].count, 4);  // counted
  EXPECT_EQ(cluster.link(RankId(3), RankId(0)), LinkCurve(Seconds(5e-5), BytesPerSecond(1.17e8)));
  EXPECT_EQ(to_json(cluster).at("links")[2].at("bandwidth_bytes_per_s"), 1.17e8);
  EXPECT_EQ(to_json(cluster).at("ranks").size(), 2u);
  expect_same(back_and_forth(cluster), cluster);
}

TEST(ClusterJson, ManyHostsInOneEntryAndAssumptions) {
  nlohmann::json json = to_json(read_cluster(sample("two_clusters.json")));
  json["ranks"][0]["per_host"] = 3;
  json["ranks"][0]["count"] = 7;
  json["assumptions"] = {"links are alike"};
  const Cluster cluster = cluster_from_json(json, "file");
  const std::string host = json["ranks"][0]["host"];
  EXPECT_EQ(cluster.ranks[2].host, host + "-0000");
  EXPECT_EQ(cluster.ranks[3].host, host + "-0001");
  EXPECT_EQ(cluster.ranks[6].host, host + "-0002");
  EXPECT_EQ(cluster.assumptions, std::vector<std::string>{"links are alike"});
  EXPECT_EQ(back_and_forth(cluster).assumptions, cluster.assumptions);
  expect_same(back_and_forth(cluster), cluster);
  json["ranks"][0]["per_host"] = 0;
  EXPECT_TRUE(json_says(refusal(json), "ranks[0].per_host is 0"));
}

TEST(ClusterJson, ReadsInterleavedRanksCurvesAndPairs) {
  const Cluster cluster = read_cluster(sample("three_kinds.json"));
  const RankClusters found = cluster.rank_clusters();
  ASSERT_EQ(found.clusters.size(), 3u);
  EXPECT_EQ(found.clusters[0].bridges.size(), 2u);
  EXPECT_DOUBLE_EQ(found.clusters[0].bridges[0].share, 2.0 / 3);
  EXPECT_EQ(cluster.link(RankId(4), RankId(1)).latency(), Seconds(2e-5));
  EXPECT_EQ(cluster.link(RankId(4), RankId(3)).latency(), Seconds(5e-5));
  EXPECT_EQ(cluster.link(RankId(0), RankId(3)).points().size(), 3u);
  expect_same(back_and_forth(cluster), cluster);
}

double any_double(std::mt19937_64& random, double least_exponent, double most_exponent) {
  return std::pow(10, std::uniform_real_distribution(least_exponent, most_exponent)(random));
}

LinkCurve any_curve(std::mt19937_64& random) {
  if (random() % 2 == 0) {
    const double latency_s = random() % 8 == 0 ? 0 : any_double(random, -8, 2);
    return {Seconds(latency_s), BytesPerSecond(any_double(random, -3, 13))};
  }
  std::vector<LinkCurve::Point> points;
  double time_s = any_double(random, -7, -3);
  for (std::uint64_t bytes = random() % 3; bytes < (1u << 24);
       bytes = bytes * 4 + 1 + random() % 9) {
    points.push_back({Bytes(bytes), Seconds(time_s)});
    time_s += random() % 4 == 0 ? 0 : any_double(random, -9, -3);
  }
  return LinkCurve(std::move(points));
}

TEST(ClusterJson, RoundTripsExactly) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> labels;
    for (std::size_t r = 0; r < 1 + random() % 8; ++r) {
      labels.push_back(std::string(1, static_cast<char>('a' + random() % 3)) + "\"é");
    }
    Cluster cluster = small_cluster(labels);
    cluster.name = random() % 2 == 0 ? "" : "name\n";
    cluster.cards = {{"x", BytesPerSecond(any_double(random, 1, 12))}, {"y"}};
    cluster.classes[0].rates["fp32"] = OpsPerSecond(any_double(random, 6, 15));
    for (RankPlace& place : cluster.ranks) {
      if (random() % 2 == 0) place.cards = {"y", "x"};
      if (random() % 2 == 0) place.host.clear();
    }
    for (Link& link : cluster.links) link.curve = any_curve(random);
    if (labels.size() > 2) {
      cluster.links.push_back({"", "", std::pair(RankId(1), RankId(2)), any_curve(random), ""});
    }
    cluster.efficiency.push_back(
        {"cpu", "gemm", "8x8x8", "fp64", OpsPerSecond(any_double(random, 3, 14)), "formula"});
    expect_same(back_and_forth(cluster), cluster);
  }
}

TEST(ClusterJson, TakesBothDirectionsWhenTheyAgree) {
  nlohmann::json json = document("two_clusters.json");
  nlohmann::json reverse = json["links"][2];
  reverse["between"] = {"b", "a"};
  json["links"].push_back(reverse);
  EXPECT_EQ(cluster_from_json(json, "x").links.size(), 3u);

  json["links"].back()["latency_s"] = 7e-5;
  const std::string text = refusal(json);
  EXPECT_TRUE(json_says(text, "asymmetric link") && json_says(text, "5e-05 s") &&
              json_says(text, "7e-05 s"))
      << text;
  json["links"].back() = json["links"][2];
  EXPECT_TRUE(json_says(refusal(json), "is there twice")) << refusal(json);
}

TEST(ClusterJson, TakesRanksInAnyOrderAndRefusesTheirAsymmetry) {
  nlohmann::json json = document("three_kinds.json");
  nlohmann::json reverse = json["links"][5];
  reverse["between"] = {4, 1};
  json["links"].push_back(reverse);
  EXPECT_EQ(cluster_from_json(json, "x").links.size(), 6u);
  json["links"].back()["bandwidth_bytes_per_s"] = 3e9;
  EXPECT_TRUE(json_says(refusal(json), "asymmetric link between ranks 1 and 4")) << refusal(json);
  json["links"].back()["between"] = {2, 2};
  EXPECT_TRUE(json_says(refusal(json), "ranks 2 and 2")) << refusal(json);
}

TEST(ClusterJson, NamesTheMissingLink) {
  nlohmann::json json = document("two_clusters.json");
  json["links"].erase(2);
  EXPECT_TRUE(json_says(refusal(json), "file.json: no link between ranks 0 and 2"))
      << refusal(json);
  json.erase("links");
  EXPECT_TRUE(json_says(refusal(json), "ranks 0 and 1")) << refusal(json);
}

TEST(ClusterJson, ReportsAllProblemsWithTheNearestKeys) {
  nlohmann::json json = document("three_kinds.json");
  json["rank"] = nlohmann::json::array();
  json["classes"][0]["memory"] = 1;
  json["cards"][0]["bandwith_bytes_per_s"] = 1;
  json["ranks"][0]["clas"] = "x";
  json["ranks"][1]["class"] = "slaw";
  json["ranks"][2]["count"] = 0;
  json["links"][0]["latency"] = 1;
  json["links"][1]["latency_s"] = "1 us";
  json["links"][3]["between"] = {"fast", 1};
  json["efficiency"][0]["ops_per_second"] = -1;
  const std::string text = refusal(json);
  for (const char* part :
       {"\"rank\"", "Did you mean \"ranks\"?", "classes[0]", "cards[0]",
        "Did you mean \"bandwidth_bytes_per_s\"?", "Did you mean \"class\"?", "slaw",
        "ranks[2].count is 0", "Did you mean \"latency_s\"?", "links[1].latency_s is \"1 us\"",
        "links[3].between", "-1 operations per second"}) {
    EXPECT_TRUE(json_says(text, part)) << part << " in\n" << text;
  }
  EXPECT_FALSE(json_says(text, "class \"fast\"")) << text;
}

TEST(ClusterJson, RefusesEachWrongValue) {
  const std::vector<std::pair<const char*, nlohmann::json>> patches = {
      {"/_format", "heteroperf-plan"},
      {"/classes", nlohmann::json::object()},
      {"/classes/0/kind", "cpux"},
      {"/classes/0/name", ""},
      {"/classes/0", 3},
      {"/cards/0/name", nullptr},
      {"/cards/0/bandwidth_bytes_per_s", -5},
      {"/cards/1/name", "left/eth0"},
      {"/ranks", nlohmann::json::array()},
      {"/ranks/0", "cpu"},
      {"/ranks/0/count", 1e9},
      {"/ranks/0/count", 70000},
      {"/ranks/0/cards", "left/eth0"},
      {"/ranks/0/cards", {"left/eth1"}},
      {"/ranks/0/cluster", ""},
      {"/links/0", nullptr},
      {"/links/0/between", "a"},
      {"/links/0/between", {"a"}},
      {"/links/0/between", {0, -1}},
      {"/links/0/between", {0, 4}},
      {"/links/0/between", {0, 0.5}},
      {"/links/0/bandwidth_bytes_per_s", 0},
      {"/links/0/latency_s", -1},
      {"/links/0/points", nlohmann::json::array()},
      {"/links/0/source", 1},
      {"/efficiency", {{{"class", "cpu"}}}},
  };
  for (const auto& [path, value] : patches) {
    nlohmann::json json = document("two_clusters.json");
    json[nlohmann::json::json_pointer(path)] = value;
    EXPECT_TRUE(json_says(refusal(json), "file.json"))
        << path << " = " << value << ": " << refusal(json);
  }
  for (const char* key : {"_format", "_version", "classes", "ranks"}) {
    nlohmann::json json = document("two_clusters.json");
    json.erase(key);
    EXPECT_TRUE(json_says(refusal(json), key)) << key << ": " << refusal(json);
  }
  for (const nlohmann::json& json :
       {nlohmann::json(), nlohmann::json(3), nlohmann::json::array()}) {
    EXPECT_TRUE(json_says(refusal(json), "must be an object")) << json;
  }
}

TEST(ClusterJson, RefusesPointsThatDoNotGrow) {
  nlohmann::json json = document("three_kinds.json");
  json["links"][2]["points"][1]["bytes"] = 64;
  json["links"][2]["points"][2]["time_s"] = -1;
  const std::string text = refusal(json);
  EXPECT_TRUE(json_says(text, "links[2]: ") && json_says(text, "not in order") &&
              json_says(text, "takes -1 s"))
      << text;
}

TEST(ClusterJson, FilesThatCannotBeReadAreNamedWithTheReason) {
  FakeRoot root;
  const auto reading = [&](const char* name) {
    return complaint<UserError>([&] { read_cluster(root.path() / name); });
  };
  std::ifstream in(sample("two_clusters.json"));
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  root.write("empty.json", "").write("part.json", whole.substr(0, whole.size() / 2));
  root.write("folder/x", "").write("twice.json", R"({"ranks": [], "ranks": []})");
  EXPECT_TRUE(json_says(reading("none.json"), "none.json") &&
              json_says(reading("none.json"), "No such file"));
  EXPECT_TRUE(json_says(reading("folder"), "it is a folder"));
  EXPECT_TRUE(json_says(reading("empty.json"), "is empty"));
  EXPECT_TRUE(json_says(reading("part.json"), "not valid JSON")) << reading("part.json");
  EXPECT_TRUE(json_says(reading("twice.json"), "twice")) << reading("twice.json");
}

TEST(ClusterJson, EveryTruncatedFileIsRefused) {
  FakeRoot root;
  std::ifstream in(sample("two_clusters.json"));
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const std::size_t end = whole.rfind('}');
  for (std::size_t n = 0; n <= end; n += 13) {
    root.write("cut.json", whole.substr(0, n));
    EXPECT_THROW(read_cluster(root.path() / "cut.json"), UserError) << n;
  }
}

TEST(ClusterJson, ADeniedFileIsNamed) {
  FakeRoot root;
  root.write("denied.json", "{}");
  std::filesystem::permissions(root.path() / "denied.json", std::filesystem::perms::none);
  constexpr uid_t nobody = 65534;  // root may read everything
  const uid_t before = geteuid();
  if (before == 0) {
    ASSERT_EQ(seteuid(nobody), 0);
  }
  const std::string text = complaint<UserError>([&] { read_cluster(root.path() / "denied.json"); });
  ASSERT_EQ(seteuid(before), 0);
  EXPECT_TRUE(json_says(text, "denied.json") && json_says(text, "Permission denied")) << text;
}

}  // namespace
}  // namespace heteroperf
