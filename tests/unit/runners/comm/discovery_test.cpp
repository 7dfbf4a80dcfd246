#include "runners/comm/discovery/agglomeration.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <span>
#include <thread>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "runners/comm/control_channel.hpp"
#include "runners/comm/discovery/link_probe.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/cluster/fake_root.hpp"
#include "tests/unit/runners/comm/slow_links.hpp"

namespace heteroperf {
namespace {

using test::FakeRoot;
using test::SlowLinks;

/// Bytes per second, far below what threads reach, under a sanitizer and on a busy machine too.
/// Links that shall look alike are `thick`: what threads reach by themselves differs with what runs
/// beside them.
constexpr double thick_rate = 1e8, thin_rate = 1e7, thinner_rate = 3e6;

RankDescriptor descriptor(const std::string& host, const std::string& label = "") {
  return {"vendor", "model", "threads", host, {{host + "/eth0", BytesPerSecond(1.25e8)}}, label};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Sets a variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// Thin between ranks of different parity.
double by_parity(int from, int to) { return (from + to) % 2 == 0 ? thick_rate : thin_rate; }
double thinner_by_parity(int from, int to) { return (from + to) % 2 == 0 ? 0 : thinner_rate; }

/// What every rank returned, by rank.
template <class Result, class Body>
std::vector<Result> on_ranks(int ranks, Body body) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    results[rank] = body(*world.communicator);
  });
  return results;
}

TEST(HostId, IsTheHostNameAndThePartOfTheBootThatTellsHostsApart) {
  FakeRoot root;
  root.write("proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
  const std::string id = host_id(root.files());
  EXPECT_TRUE(id.ends_with(":01234567")) << id;
  EXPECT_GT(id.size(), 9u);
  EXPECT_EQ(host_id(FakeRoot().files()), id.substr(0, id.size() - 9));
}

TEST(HostId, IsOverriddenByTheEnvironment) {
  const Variable variable("HETEROPERF_HOST_ID", "rack7");
  EXPECT_EQ(host_id(), "rack7");
  const RankDescriptor local = describe_this_rank("mpi 4", "left");
  EXPECT_EQ(local.host, "rack7");
  EXPECT_EQ(local.library, "mpi 4");
  EXPECT_EQ(local.label, "left");
  EXPECT_FALSE(local.vendor.empty());
  EXPECT_FALSE(local.model.empty());
  EXPECT_GT(local.host_cores, 0);
  for (const NetworkCard& card : local.cards) EXPECT_TRUE(card.name.starts_with("rack7/"));
}

TEST(Descriptor, SurvivesAsText) {
  RankDescriptor local = descriptor("hôst\"", "a\nb");
  local.cards.push_back({"x", BytesPerSecond(0.1 + 0.2)});
  local.host_cores = 64;
  EXPECT_EQ(parse_descriptor(descriptor_text(local), "x"), local);
  local.model = "\xff\xfe";
  EXPECT_NO_THROW(parse_descriptor(descriptor_text(local), "x"));
}

TEST(Descriptor, WrongTextIsRefusedWithEverythingWrong) {
  for (const char* text : {"", "[]", "{", "{}", "null"}) {
    EXPECT_THROW(parse_descriptor(text, "x"), UserError) << text;
  }
  try {
    parse_descriptor(R"({"vendor":1,"model":"m","library":"l","hosts":"h","label":"",
                         "cards":[{"name":"c","bandwidth_bytes_per_s":-1},{"name":2}]})",
                     "rank 3");
    FAIL() << "no exception";
  } catch (const UserError& error) {
    for (const char* part : {"rank 3: ", "vendor is 1", "\"hosts\"", "host is missing",
                             "negative bandwidth", "cards[1].name"}) {
      EXPECT_TRUE(says(error.what(), part)) << part << " in\n" << error.what();
    }
  }
}

TEST(GatherDescriptors, BringsEverybodysInRankOrder) {
  for (const int ranks : {1, 2, 5}) {
    const auto all = on_ranks<std::vector<RankDescriptor>>(ranks, [](Communicator& world) {
      const int rank = world.rank().value();
      return gather_descriptors(world, descriptor(std::string(static_cast<std::size_t>(rank), 'h'),
                                                  fmt::format("label {}", rank)));
    });
    for (const auto& of_rank : all) {
      ASSERT_EQ(of_rank.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(of_rank, all.front());
      EXPECT_EQ(of_rank.back().label, fmt::format("label {}", ranks - 1));
    }
  }
}

/// Rank 1 sends `text`, of the length it claims, in place of a descriptor.
std::string complaint_about(const std::string& text, std::int64_t claimed) {
  std::string complaint;
  run_on_threads(2, {}, [&](World& world) {
    Communicator& comm = *world.communicator;
    if (comm.rank() == RankId(0)) {
      try {
        gather_descriptors(comm, descriptor("h"));
      } catch (const SystemError& error) {
        complaint = error.what();
      }
      return;
    }
    std::vector<std::int64_t> lengths(2);
    const std::array<std::int64_t, 1> local = {claimed};
    comm.all_gather(std::span(local), MutableBuffer(std::span(lengths)));
    if (claimed != static_cast<std::int64_t>(text.size())) return;
    const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
    std::string all(counts[0] + counts[1], ' ');
    comm.all_gather({text.data(), text.size(), DataType::u8},
                    {all.data(), all.size(), DataType::u8}, counts);
  });
  return complaint;
}

TEST(GatherDescriptors, NamesTheRankThatMakesNoSense) {
  EXPECT_TRUE(says(complaint_about("{\"vendor\":", 10), "rank 1")) << complaint_about("{", 1);
  EXPECT_TRUE(says(complaint_about("", std::int64_t{1} << 40), "rank 1 sends a text of 1099"));
  EXPECT_TRUE(says(complaint_about("x", -1), "of -1 bytes"));
}

TEST(DiscoverClusters, FindsTheSameOnAllRanks) {
  const auto found = on_ranks<RankClusters>(4, [](Communicator& world) {
    SlowLinks slow(world, by_parity);
    return discover_clusters(
        slow, gather_descriptors(slow, descriptor(world.rank().value() % 2 == 0 ? "even" : "odd")));
  });
  for (const RankClusters& of_rank : found) EXPECT_EQ(of_rank, found.front());
  ASSERT_EQ(found[0].clusters.size(), 2u) << found[0].reason;
  EXPECT_EQ(found[0].clusters[1].ranks, (std::vector{RankId(1), RankId(3)}));
  EXPECT_TRUE(says(found[0].reason, "bandwidth gap")) << found[0].reason;
}

TEST(DiscoverClusters, FindsThinLinksInsideAHost) {
  const auto found = on_ranks<RankClusters>(4, [](Communicator& world) {
    SlowLinks slow(world, [](int a, int b) { return a == 2 || b == 2 ? thin_rate : thick_rate; });
    return discover_clusters(slow, std::vector(4, descriptor("one")));
  });
  ASSERT_EQ(found[0].clusters.size(), 2u) << found[0].reason;
  EXPECT_EQ(found[0].clusters[1].ranks, (std::vector{RankId(2)}));
}

TEST(DiscoverClusters, OneRankNeedsNoPartner) {
  const auto comm = make_null_communicator();
  const RankClusters found = discover_clusters(*comm, {descriptor("h")});
  EXPECT_EQ(found.clusters.size(), 1u);
  const Cluster cluster = measure_links(*comm, found, {descriptor("h")});
  EXPECT_TRUE(cluster.links.empty());
  EXPECT_EQ(cluster.ranks.size(), 1u);
}

Cluster measured(Communicator& world, const LinkSweep& sweep) {
  SlowLinks slow(world, thinner_by_parity);
  const RankDescriptor local = descriptor(world.rank().value() % 2 == 0 ? "even" : "odd");
  const auto descriptors = gather_descriptors(slow, local);
  return measure_links(slow, clusters_by_label({"a", "b", "a", "b"}, 4), descriptors, sweep);
}

void expect_thin_between_parities(const std::vector<Cluster>& found) {
  for (const Cluster& of_rank : found) {
    EXPECT_EQ(of_rank.links, found[0].links);
    EXPECT_EQ(of_rank.ranks, found[0].ranks);
  }
  Cluster cluster = found[0];
  cluster.classes.push_back({.name = "cpu", .rates = {}});
  for (RankPlace& place : cluster.ranks) place.device_class = "cpu";
  EXPECT_NO_THROW(check_cluster(cluster));
  EXPECT_EQ(cluster_from_json(to_json(cluster), "x").links, cluster.links);
  const Bytes size(262144);
  const double thin_s = cluster.link(RankId(0), RankId(1)).time(size).value();
  const double fast_s = cluster.link(RankId(0), RankId(2)).time(size).value();
  EXPECT_GT(thin_s, 2 * fast_s);
  EXPECT_GE(thin_s, 0.999 * 262144 / thinner_rate);
}

TEST(MeasureLinks, MeasuresEveryPairAlikeOnAllRanks) {
  const LinkSweep sweep{.sizes = {Bytes(64), Bytes(262144)}, .budget = Seconds(1e-3)};
  const auto found =
      on_ranks<Cluster>(4, [&](Communicator& world) { return measured(world, sweep); });
  ASSERT_EQ(found[0].links.size(), 6u);
  EXPECT_TRUE(found[0].links[0].ranks.has_value());
  EXPECT_EQ(found[0].links[0].source, "measured");
  ASSERT_EQ(found[0].cards.size(), 2u);
  EXPECT_EQ(found[0].cards[1].name, "odd/eth0");
  EXPECT_EQ(found[0].ranks[3].cluster, "b");
  expect_thin_between_parities(found);
}

TEST(MeasureLinks, MeasuresRepresentativesOfManyRanks) {
  const LinkSweep sweep{
      .sizes = {Bytes(64), Bytes(262144)}, .budget = Seconds(1e-3), .all_pairs_up_to = 3};
  const auto found =
      on_ranks<Cluster>(4, [&](Communicator& world) { return measured(world, sweep); });
  ASSERT_EQ(found[0].links.size(), 3u);
  EXPECT_FALSE(found[0].links[0].ranks.has_value());
  expect_thin_between_parities(found);
}

TEST(MeasureLinks, LeavesOutWhatTakesLongerThanTheBudget) {
  const LinkSweep sweep{.sizes = {Bytes(64), Bytes(1 << 18), Bytes(1 << 28)},
                        .budget = Seconds(1e-3)};
  const auto found = on_ranks<Cluster>(2, [&](Communicator& world) {
    SlowLinks slow(world, thinner_by_parity);
    return measure_links(slow, clusters_by_label({"", ""}, 2), {descriptor("a"), descriptor("b")},
                         sweep);
  });
  ASSERT_EQ(found[0].links.size(), 1u);
  // 256 KiB takes 0.09 s; 256 MiB would take 90 s.
  EXPECT_EQ(found[0].links[0].curve.points().back().size, Bytes(1 << 18));
  EXPECT_GE(found[0].links[0].curve.time(Bytes(1 << 18)).value(), 0.999 * (1 << 18) / thinner_rate);
}

TEST(MeasureLinks, ADeadPeerEndsTheMeasurement) {
  std::atomic<int> saw = 0;
  const auto measuring = [&] {
    run_on_threads(3, {}, [&](World& world) {
      if (world.communicator->rank() == RankId(2)) throw UserError("rank 2 gives up");
      try {
        measure_links(*world.communicator, clusters_by_label({"", "", ""}, 3),
                      {descriptor("a"), descriptor("b"), descriptor("c")});
      } catch (const PeerError& error) {
        EXPECT_EQ(error.failure().rank, RankId(2));
        ++saw;
        throw;
      }
    });
  };
  EXPECT_THROW(measuring(), UserError);
  EXPECT_EQ(saw, 2);
}

TEST(MeasureLinks, ALatePeerIsWaitedFor) {
  const auto found = on_ranks<Cluster>(3, [](Communicator& world) {
    if (world.rank() == RankId(1)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const RankDescriptor local = descriptor("one");
    const auto descriptors = gather_descriptors(world, local);
    return measure_links(world, discover_clusters(world, descriptors), descriptors,
                         {.sizes = {Bytes(64), Bytes(4096)}, .budget = Seconds(1e-3)});
  });
  EXPECT_EQ(found[0].links.size(), 3u);
  EXPECT_EQ(found[0].links, found[2].links);
}

TEST(DisjointRounds, ShareNoHostAndLoseNothing) {
  using Hosts = std::vector<std::set<std::string>>;
  using Rounds = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(disjoint_rounds(Hosts{{"a", "b"}, {"c", "d"}, {"a", "c"}, {"b", "d"}, {"a", "e"}}),
            (Rounds{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(disjoint_rounds(Hosts{{"a"}, {"a"}, {"b"}}), (Rounds{{0, 2}, {1}}));
  EXPECT_EQ(disjoint_rounds(Hosts{{"a"}, {""}, {"b"}}), (Rounds{{0, 2}, {1}}));
  EXPECT_TRUE(disjoint_rounds({}).empty());
}

TEST(CurveOf, TakesOutNoiseThatMakesLargerMessagesFaster) {
  const auto point = [](std::uint64_t bytes, double time_s) {
    return LinkCurve::Point{Bytes(bytes), Seconds(time_s)};
  };
  const LinkCurve curve = curve_of({point(1, 3), point(2, 1), point(4, 0), point(8, 5)});
  EXPECT_EQ(curve.points(), (std::vector{point(1, 1), point(2, 1), point(8, 5)}));
}

}  // namespace
}  // namespace heteroperf
