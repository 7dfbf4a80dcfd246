#include "runners/comm/discovery/agglomeration.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace heteroperf {
namespace {

using Matrix = std::vector<std::vector<double>>;
using Sets = std::set<std::set<int>>;

RankDescriptor on_host(const std::string& host, const std::string& label = "") {
  return {"vendor", "model", "mpi 4", host, {{host + "/eth0"}}, label};
}

std::vector<RankDescriptor> on_hosts(const std::vector<std::string>& hosts) {
  std::vector<RankDescriptor> ranks;
  for (const std::string& host : hosts) ranks.push_back(on_host(host));
  return ranks;
}

/// Ranks a, b are linked by fast where their site is the same, by slow otherwise.
Matrix by_site(const std::vector<int>& sites, double fast, double slow) {
  Matrix matrix(sites.size(), std::vector<double>(sites.size()));
  for (std::size_t a = 0; a < sites.size(); ++a) {
    for (std::size_t b = 0; b < sites.size(); ++b) {
      matrix[a][b] = sites[a] == sites[b] ? fast : slow;
    }
  }
  return matrix;
}

RankClusters find(const std::vector<RankDescriptor>& ranks, const Matrix& matrix,
                  const AgglomerationConfig& config = {}) {
  return agglomerate(
      ranks,
      [&](RankId a, RankId b) {
        EXPECT_LT(a, b);
        return BytesPerSecond(matrix[a.index()][b.index()]);
      },
      config);
}

Sets sets_of(const RankClusters& found, const std::vector<int>& names) {
  Sets sets;
  for (const RankCluster& cluster : found.clusters) {
    std::set<int> members;
    for (const RankId rank : cluster.ranks) {
      members.insert(names[rank.index()]);
    }
    sets.insert(members);
  }
  return sets;
}

Sets sets_of(const RankClusters& found) {
  std::vector<int> names(static_cast<std::size_t>(found.ranks()));
  std::iota(names.begin(), names.end(), 0);
  return sets_of(found, names);
}

bool reason_says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Agglomeration, LabelsWinWithoutAnyMeasurement) {
  std::vector<RankDescriptor> ranks;
  for (const char* label : {"x", "y", "x", "z"}) ranks.push_back(on_host("one", label));
  const auto measure = [](RankId, RankId) {
    ADD_FAILURE() << "measured";
    return BytesPerSecond(1);
  };
  const RankClusters found = agglomerate(ranks, measure, {});
  EXPECT_EQ(sets_of(found), (Sets{{0, 2}, {1}, {3}}));
  EXPECT_EQ(found.clusters[1].label, "y");
  EXPECT_EQ(found.reason, "labels given");
}

TEST(Agglomeration, LabelsOfSomeLeaveTheOthersToMeasurement) {
  std::vector<RankDescriptor> ranks = on_hosts({"a", "a", "a", "b", "b"});
  ranks[1].label = "c0";
  const RankClusters found = find(ranks, by_site({0, 0, 0, 1, 1}, 5e9, 1e8));
  EXPECT_EQ(sets_of(found), (Sets{{0, 2}, {1}, {3, 4}}));
  EXPECT_EQ(found.clusters[1].label, "c0");
  EXPECT_EQ(found.clusters[0].label, "c1");
  EXPECT_TRUE(reason_says(found.reason, "labels given for 1")) << found.reason;
}

TEST(Agglomeration, OneHostIsOneCluster) {
  const RankClusters found = find(on_hosts({"a", "a", "a"}), by_site({0, 0, 0}, 5e9, 0));
  EXPECT_EQ(sets_of(found), (Sets{{0, 1, 2}}));
  EXPECT_TRUE(reason_says(found.reason, "one host")) << found.reason;
  EXPECT_EQ(find(on_hosts({"a"}), {{0}}).reason, "one rank");
}

TEST(Agglomeration, RanksThatShareCoresAreNotToldApart) {
  std::vector<RankDescriptor> ranks = on_hosts({"a", "a", "a"});
  for (RankDescriptor& rank : ranks) rank.host_cores = 2;
  const Matrix waits = by_site({0, 1, 0}, 5e9, 1e8);
  const RankClusters found = find(ranks, waits);
  EXPECT_EQ(sets_of(found), (Sets{{0, 1, 2}}));
  EXPECT_TRUE(reason_says(found.reason, "3 ranks share 2 cores")) << found.reason;
  for (RankDescriptor& rank : ranks) rank.host_cores = 3;
  EXPECT_EQ(sets_of(find(ranks, waits)), (Sets{{0, 2}, {1}}));
}

TEST(Agglomeration, LargeHostsAreNotSaidToShareCores) {
  std::vector<RankDescriptor> ranks = on_hosts(std::vector<std::string>(17, "a"));
  for (RankDescriptor& rank : ranks) rank.host_cores = 64;
  const RankClusters found = find(ranks, by_site(std::vector<int>(17, 0), 5e9, 1e8));
  EXPECT_EQ(found.clusters.size(), 1u);
  EXPECT_EQ(found.reason, "one host: 17 ranks, too many to measure each link");
}

TEST(Agglomeration, TellsLikeClustersBehindAThinLinkApart) {
  const auto ranks = on_hosts({"a", "b", "a", "b", "a"});
  const RankClusters thin = find(ranks, by_site({0, 1, 0, 1, 0}, 5e9, 1.17e8));
  EXPECT_EQ(sets_of(thin), (Sets{{0, 2, 4}, {1, 3}}));
  EXPECT_TRUE(reason_says(thin.reason, "42.7x") && reason_says(thin.reason, "0.117 GB/s"))
      << thin.reason;
  EXPECT_EQ(thin.clusters[0].label, "c0");
  EXPECT_EQ(thin.clusters[1].bridges, (std::vector{Bridge{RankId(1), "b/eth0", 1.0}}));
  const RankClusters wide = find(ranks, by_site({0, 1, 0, 1, 0}, 5e9, 2.6e9));
  EXPECT_EQ(sets_of(wide), (Sets{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(wide.clusters[0].bridges.size(), 2u);  // one per card
}

TEST(Agglomeration, TheGapIsWhatIsAskedFor) {
  const auto ranks = on_hosts({"a", "a", "b", "b"});
  const Matrix matrix = by_site({0, 0, 1, 1}, 9e8, 1e8);
  EXPECT_EQ(find(ranks, matrix, {.gap = 8.9}).clusters.size(), 2u);
  EXPECT_EQ(find(ranks, matrix, {.gap = 9.1}).clusters.size(), 1u);
}

TEST(Agglomeration, ALoneRankBehindAThinLinkIsACluster) {
  for (std::size_t lone = 0; lone < 4; ++lone) {
    std::vector<int> sites(4, 0);
    sites[lone] = 1;
    std::vector<std::string> hosts(4, "a");
    hosts[lone] = "b";
    EXPECT_EQ(find(on_hosts(hosts), by_site(sites, 5e9, 1e8)).clusters.size(), 2u) << lone;
  }
}

TEST(Agglomeration, HostsOfOneRankGroupByTheirSwitch) {
  const auto ranks = on_hosts({"a", "b", "c", "d", "e", "f"});
  Matrix matrix = by_site({0, 1, 0, 1, 0, 2}, 1e9, 1e8);
  matrix[1][3] = matrix[3][1] = 5e8;  // a slower cluster beside a fast one
  EXPECT_EQ(sets_of(find(ranks, matrix)), (Sets{{0, 2, 4}, {1, 3}, {5}}))
      << find(ranks, matrix).reason;
  EXPECT_EQ(find(ranks, by_site({0, 0, 0, 0, 0, 0}, 1e9, 0)).clusters.size(), 1u);
}

TEST(Agglomeration, LoneRanksBehindThinLinksStayAlone) {
  const RankClusters found =
      find(on_hosts({"a", "b", "a", "c"}), by_site({0, 1, 0, 2}, 5e9, 1.17e8));
  EXPECT_EQ(sets_of(found), (Sets{{0, 2}, {1}, {3}}));
}

TEST(Agglomeration, FindsFourClustersOfUnequalSize) {
  const std::vector<int> sites = {0, 1, 2, 0, 3, 1, 0, 3, 0, 1};
  std::vector<std::string> hosts;
  for (const int site : sites) hosts.push_back(fmt::format("host{}", site));
  EXPECT_EQ(sets_of(find(on_hosts(hosts), by_site(sites, 5e9, 1e8))),
            (Sets{{0, 3, 6, 8}, {1, 5, 9}, {2}, {4, 7}}));
}

TEST(Agglomeration, CutsAHostWhoseRanksAreFarApart) {
  for (const std::vector<int>& sites :
       {std::vector<int>{0, 0, 1, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 2}}) {
    const RankClusters found = find(on_hosts({"a", "a", "a", "a"}), by_site(sites, 5e9, 1.17e8));
    EXPECT_EQ(found.clusters.size(), std::set<int>(sites.begin(), sites.end()).size());
    for (int r = 0; r < 4; ++r) {
      for (int s = 0; s < r; ++s) {
        EXPECT_EQ(found.cluster_of(RankId(r)) == found.cluster_of(RankId(s)),
                  sites[static_cast<std::size_t>(r)] == sites[static_cast<std::size_t>(s)]);
      }
    }
  }
  // Noise of a loaded host cuts nothing.
  EXPECT_EQ(find(on_hosts({"a", "a", "a", "a"}), by_site({0, 0, 1, 1}, 3e9, 1e9)).clusters.size(),
            1u);
}

TEST(Agglomeration, UnlikeDevicesNeverShareACluster) {
  auto ranks = on_hosts({"a", "a", "a", "b"});
  ranks[1].vendor = "other";
  ranks[3].model = "another model";
  const RankClusters found = find(ranks, by_site({0, 0, 0, 0}, 5e9, 0));
  EXPECT_EQ(sets_of(found), (Sets{{0, 2, 3}, {1}}));
  EXPECT_TRUE(reason_says(found.reason, "unlike") && reason_says(found.reason, "other mpi 4"))
      << found.reason;
  ranks[1] = ranks[0];
  ranks[1].library = "nccl 2";
  EXPECT_EQ(find(ranks, by_site({0, 0, 0, 0}, 5e9, 0)).clusters.size(), 2u);
}

TEST(Agglomeration, ABrokenLinkSeparates) {
  const Matrix matrix = by_site({0, 0, 1, 1}, 5e9, std::nan(""));
  EXPECT_EQ(find(on_hosts({"a", "a", "b", "b"}), matrix).clusters.size(), 2u);
}

TEST(Agglomeration, ManyRanksOfAHostAreMeasuredOnce) {
  std::vector<RankDescriptor> ranks;
  for (int r = 0; r < 40; ++r) ranks.push_back(on_host(r % 2 == 0 ? "a" : "b"));
  int calls = 0;
  const auto measure = [&](RankId a, RankId b) {
    ++calls;
    return BytesPerSecond((a.value() + b.value()) % 2 == 0 ? 5e9 : 1e8);
  };
  EXPECT_EQ(agglomerate(ranks, measure, {}).clusters.size(), 2u);
  EXPECT_EQ(calls, 3);  // inside each, and between
}

TEST(Agglomeration, BridgesAreOnePerCardUpToTheCap) {
  auto ranks = on_hosts(std::vector<std::string>(10, "a"));
  for (std::size_t r = 0; r < 10; ++r) ranks[r].cards = {{fmt::format("a/ib{}", r)}};
  const Matrix matrix = by_site(std::vector<int>(10, 0), 5e9, 0);
  EXPECT_EQ(find(ranks, matrix).clusters[0].bridges.size(), std::size_t{most_bridges});
  ranks.resize(4);
  EXPECT_EQ(find(ranks, matrix).clusters[0].bridges.size(), 4u);
}

/// Ranks in another order, with the links between them moved along.
struct Shuffled {
  std::vector<RankDescriptor> ranks;
  Matrix matrix;
  std::vector<int> names;  ///< what each rank was before
};

Shuffled shuffled(const std::vector<RankDescriptor>& ranks, const Matrix& matrix,
                  std::mt19937& random) {
  Shuffled result{{}, Matrix(ranks.size(), std::vector<double>(ranks.size())), {}};
  result.names.resize(ranks.size());
  std::iota(result.names.begin(), result.names.end(), 0);
  std::shuffle(result.names.begin(), result.names.end(), random);
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    const auto before = static_cast<std::size_t>(result.names[a]);
    result.ranks.push_back(ranks[before]);
    for (std::size_t b = 0; b < ranks.size(); ++b) {
      result.matrix[a][b] = matrix[before][static_cast<std::size_t>(result.names[b])];
    }
  }
  return result;
}

Matrix any_matrix(std::size_t ranks, std::mt19937& random) {
  // Few distinct values, so that ties are common.
  const bool has_ties = random() % 2 == 0;
  std::uniform_real_distribution<double> exponent(8, 10.5);
  Matrix matrix(ranks, std::vector<double>(ranks, 0));
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const double power = has_ties ? std::round(exponent(random) * 3) / 3 : exponent(random);
      matrix[a][b] = matrix[b][a] = std::pow(10, power);
    }
  }
  return matrix;
}

TEST(Agglomeration, AnyOrderOfRanksGivesTheSamePartition) {
  std::mt19937 random(5);
  std::set<std::size_t> counts;
  for (int i = 0; i < 400; ++i) {
    const std::size_t p = 1 + random() % 16;
    std::vector<RankDescriptor> ranks;
    const bool is_one_host = i % 2 == 0;
    for (std::size_t r = 0; r < p; ++r) {
      ranks.push_back(on_host(is_one_host ? "one" : fmt::format("host{}", r)));
      if (random() % 8 == 0) ranks.back().vendor = "other";
      if (random() % 16 == 0) ranks.back().label = "label";
    }
    const Matrix matrix = any_matrix(p, random);
    const Sets expected = sets_of(find(ranks, matrix));
    counts.insert(expected.size());
    for (int j = 0; j < 5; ++j) {
      const Shuffled other = shuffled(ranks, matrix, random);
      const RankClusters found = find(other.ranks, other.matrix);
      ASSERT_EQ(sets_of(found, other.names), expected) << i;
      for (std::size_t c = 1; c < found.clusters.size(); ++c) {
        ASSERT_LT(found.clusters[c - 1].ranks.front(), found.clusters[c].ranks.front());
      }
    }
  }
  EXPECT_GE(counts.size(), 4u);
}

TEST(Agglomeration, RecoversRandomSitesInAnyOrder) {
  std::mt19937 random(6);
  for (int i = 0; i < 300; ++i) {
    const std::size_t p = 2 + random() % 15;
    std::vector<int> sites;
    std::vector<std::string> hosts;
    std::set<int> distinct;
    for (std::size_t r = 0; r < p; ++r) {
      sites.push_back(static_cast<int>(random() % 4));
      hosts.push_back(fmt::format("host{}", sites.back()));
      distinct.insert(sites.back());
    }
    // Ranks that are all alone have nothing to be compared with.
    if (distinct.size() == p) continue;
    std::uniform_real_distribution<double> noise(0.8, 1.25);
    Matrix matrix = by_site(sites, 5e9, 3e8);
    for (auto& row : matrix) {
      for (double& value : row) value *= noise(random);
    }
    EXPECT_EQ(find(on_hosts(hosts), matrix).clusters.size(), distinct.size()) << i;
  }
}

}  // namespace
}  // namespace heteroperf
