// Measuring links between ranks with ping-pong: one rank sends a message, its peer sends it back,
// and half of the round trip is the time of the message. The leading rank tells its peer by
// *orders* over the harness how large the next messages are and how many.
//
// measure_links() sweeps over all pairs of ranks, or over one pair for each two clusters, in rounds
// of pairs that share no host.
#include "runners/comm/discovery/link_probe.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"

namespace heteroperf {
namespace {

constexpr double most_repetitions = 100;
/// On a busy machine any small message can seem slow. So a message of up to `indecisive` bytes
/// never ends the sweep, and one of fewer than `decisive` bytes only where it takes `hopeless`
/// budgets.
constexpr Bytes indecisive{1 << 14}, decisive{1 << 20};
constexpr double hopeless = 20;

/// Tell `second` what to echo: bytes, then repetitions. Orders without repetitions end the sweep.
using Orders = std::array<std::int64_t, 2>;

/// One end of the link.
class End {
 public:
  End(const LinkGroup& links, RankId peer, Bytes largest)
      : links_(links),
        peer_(peer),
        peer_in_group_(links.rank_in_group(peer)),
        tag_(&links.group == &links.harness ? message_tags::link_probe : 0),
        largest_(largest),
        values_(links.group.memory(), largest.value()) {}

  void send(Bytes size) { links_.group.send(ConstBuffer(message(size)), peer_in_group_, tag_); }
  void receive(Bytes size) { links_.group.receive(message(size), peer_in_group_, tag_); }
  Seconds round_trip(Bytes size) {
    const Stopwatch stopwatch;
    send(size);
    receive(size);
    return Seconds(stopwatch.elapsed_s());
  }
  void send(const Orders& orders) {
    links_.harness.send(std::span(orders), peer_, message_tags::link_probe);
  }
  Orders receive_orders() {
    Orders orders{};
    links_.harness.receive(std::span(orders), peer_, message_tags::link_probe);
    return orders;
  }
  /// Adds the round trips of one size.
  void measure(Bytes size, std::int64_t repetitions, std::vector<Seconds>& times) {
    send(Orders{static_cast<std::int64_t>(size.value()), repetitions});
    for (std::int64_t i = 0; i < repetitions; ++i) times.push_back(round_trip(size));
  }

 private:
  MutableBuffer message(Bytes size) {
    HETEROPERF_EXPECT(size <= largest_);
    return {values_.data(), static_cast<std::size_t>(size.value()), DataType::u8};
  }

  const LinkGroup& links_;
  RankId peer_, peer_in_group_;
  int tag_;  ///< the tag of timed messages
  Bytes largest_;
  MemoryBlock values_;
};

bool is_last(Bytes size, Seconds one_way, Seconds budget) {
  return size > indecisive && one_way > budget * (size >= decisive ? 1 : hopeless);
}

std::int64_t repetitions_for(Bytes size, Seconds first, const PingPong& plan) {
  if (size > indecisive && first / 2 > plan.budget * hopeless) return 1;
  const double fitting = plan.budget / std::max(first, Seconds(1e-9));
  const double least = plan.repetition == Repetition::median ? 5 : 8;
  return static_cast<std::int64_t>(std::clamp(fitting, least, most_repetitions));
}

/// Returns half of the round trip that counts; `round_trips` are sorted.
Seconds one_way(const std::vector<Seconds>& round_trips, Repetition repetition) {
  const bool is_least = repetition == Repetition::least || round_trips.size() < 3;
  const Seconds chosen = is_least ? round_trips.front() : round_trips[round_trips.size() / 2];
  return std::max(chosen / 2, Seconds(1e-9));
}

std::vector<LinkCurve::Point> lead(End& end, const PingPong& plan) {
  std::vector<LinkCurve::Point> points;
  for (const Bytes size : plan.sizes) {
    std::vector<Seconds> round_trips;
    // The first of a size connects and touches memory; it counts where there is no time for more.
    end.measure(size, 1, round_trips);
    const Seconds first = round_trips.front();
    end.measure(size, repetitions_for(size, first, plan), round_trips);
    if (round_trips.size() > 2) round_trips.erase(round_trips.begin());
    std::sort(round_trips.begin(), round_trips.end());
    points.push_back({size, one_way(round_trips, plan.repetition)});
    if (is_last(size, round_trips.front() / 2, plan.budget)) break;
  }
  end.send(Orders{});
  return points;
}

void follow(End& end) {
  while (true) {
    const auto [bytes, repetitions] = end.receive_orders();
    if (repetitions == 0) return;
    for (std::int64_t i = 0; i < repetitions; ++i) {
      end.receive(Bytes(static_cast<std::uint64_t>(bytes)));
      end.send(Bytes(static_cast<std::uint64_t>(bytes)));
    }
  }
}

/// One link to be measured, and the ranks or clusters for which it stands.
struct Task {
  RankId a, b;
  Link link;
};

Task task_of_ranks(RankId a, RankId b) { return {a, b, {"", "", std::pair(a, b), {}, "measured"}}; }

Task task_of_labels(RankId a, RankId b, const std::string& from, const std::string& to) {
  return {std::min(a, b), std::max(a, b), {from, to, {}, {}, "measured"}};
}

std::vector<Task> tasks_for_all_pairs(int ranks) {
  std::vector<Task> tasks;
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) tasks.push_back(task_of_ranks(RankId(a), RankId(b)));
  }
  return tasks;
}

/// Chooses the first rank of another host, since the network limits a cluster of hosts; else the
/// second rank.
RankId partner_inside(const RankCluster& cluster, const std::vector<RankDescriptor>& descriptors) {
  const std::string& host = descriptors[cluster.ranks.front().index()].host;
  for (const RankId rank : cluster.ranks) {
    if (descriptors[rank.index()].host != host) return rank;
  }
  return cluster.ranks[1];
}

std::vector<Task> tasks_for_clusters(const RankClusters& clusters,
                                     const std::vector<RankDescriptor>& descriptors) {
  std::vector<Task> tasks;
  const auto& list = clusters.clusters;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].ranks.size() > 1) {
      tasks.push_back(task_of_labels(list[i].ranks.front(), partner_inside(list[i], descriptors),
                                     list[i].label, list[i].label));
    }
    for (std::size_t j = i + 1; j < list.size(); ++j) {
      tasks.push_back(task_of_labels(list[i].bridges.front().rank, list[j].bridges.front().rank,
                                     list[i].label, list[j].label));
    }
  }
  return tasks;
}

std::vector<std::set<std::string>> hosts_of(const std::vector<Task>& tasks,
                                            const std::vector<RankDescriptor>& descriptors) {
  std::vector<std::set<std::string>> hosts;
  for (const Task& task : tasks) {
    hosts.push_back({descriptors[task.a.index()].host, descriptors[task.b.index()].host});
  }
  return hosts;
}

std::vector<Bytes> sizes_of(const LinkSweep& sweep) {
  if (!sweep.sizes.empty()) return sweep.sizes;
  std::vector<Bytes> sizes;
  for (std::uint64_t bytes = 64; bytes <= 16 << 20; bytes *= 4) sizes.emplace_back(bytes);
  return sizes;
}

/// Returns the curve that `leader` has measured, the same bits on every rank.
LinkCurve share_curve(Communicator& world, RankId leader, const std::vector<Bytes>& sizes,
                      const std::vector<LinkCurve::Point>& measured) {
  std::vector<double> times_s(sizes.size(), 0);  // 0 where a size was left out
  for (std::size_t i = 0; i < measured.size(); ++i) times_s[i] = measured[i].time.value();
  world.broadcast(std::span(times_s), leader);
  std::vector<LinkCurve::Point> points;
  for (std::size_t i = 0; i < sizes.size(); ++i) points.push_back({sizes[i], Seconds(times_s[i])});
  return curve_of(std::move(points));
}

/// Lists every card once, in order of the first rank that has it.
std::vector<NetworkCard> all_cards(const std::vector<RankDescriptor>& descriptors) {
  std::vector<NetworkCard> cards;
  for (const RankDescriptor& descriptor : descriptors) {
    for (const NetworkCard& card : descriptor.cards) {
      const auto known = std::ranges::find(cards, card.name, &NetworkCard::name);
      if (known == cards.end()) {
        cards.push_back(card);
      } else {
        known->bandwidth = std::max(known->bandwidth, card.bandwidth);
      }
    }
  }
  return cards;
}

RankPlace place_of(const RankDescriptor& descriptor, const std::string& label) {
  RankPlace place{"", descriptor.host, label, {}};
  for (const NetworkCard& card : descriptor.cards) place.cards.push_back(card.name);
  return place;
}

}  // namespace

RankId LinkGroup::rank_in_group(RankId rank) const {
  if (members.empty()) return rank;
  const auto place = std::find(members.begin(), members.end(), rank);
  HETEROPERF_EXPECT(place != members.end());
  return RankId(place - members.begin());
}

std::vector<LinkCurve::Point> ping_pong(const LinkGroup& links, const PingPong& plan) {
  HETEROPERF_EXPECT(!plan.sizes.empty() && plan.first != plan.second && plan.budget > Seconds(0));
  const RankId self = links.harness.rank();
  HETEROPERF_EXPECT(self == plan.first || self == plan.second);
  End end(links, self == plan.first ? plan.second : plan.first,
          std::max(Bytes(1), plan.sizes.back()));
  if (self == plan.first) return lead(end, plan);
  follow(end);
  return {};
}

void cut_to_larger(std::vector<LinkCurve::Point>& points) {
  for (std::size_t i = points.size(); i-- > 1;) {
    points[i - 1].time = std::min(points[i - 1].time, points[i].time);
  }
}

LinkCurve curve_of(std::vector<LinkCurve::Point> points) {
  std::erase_if(points, [](const LinkCurve::Point& p) { return !(p.time > Seconds(0)); });
  cut_to_larger(points);
  return LinkCurve(std::move(points));
}

std::vector<std::vector<std::size_t>> disjoint_rounds(
    const std::vector<std::set<std::string>>& hosts_of_each) {
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<std::set<std::string>> busy;
  for (std::size_t i = 0; i < hosts_of_each.size(); ++i) {
    const std::set<std::string>& hosts = hosts_of_each[i];
    const auto is_free = [&](const std::set<std::string>& taken) {
      return hosts.count("") + taken.count("") == 0 &&
             std::none_of(hosts.begin(), hosts.end(),
                          [&](const std::string& host) { return taken.count(host) != 0; });
    };
    const auto free = std::find_if(busy.begin(), busy.end(), is_free);
    const auto round = static_cast<std::size_t>(free - busy.begin());
    if (free == busy.end()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[round].push_back(i);
    busy[round].insert(hosts.begin(), hosts.end());
  }
  return rounds;
}

BytesPerSecond shared_bandwidth(const LinkGroup& links, RankId a, RankId b) {
  const std::vector<Bytes> sizes = {Bytes(64), Bytes(65536), Bytes(1048576)};
  double bytes_per_s = 0;
  if (links.harness.rank() == a || links.harness.rank() == b) {
    const auto points = ping_pong(links, {a, b, sizes, Seconds(0.004), Repetition::least});
    // The largest message alone counts: a slope would turn noise in another one into a rate that no
    // link has.
    if (!points.empty() && points.back().time > Seconds(0)) {
      bytes_per_s = static_cast<double>(points.back().size.value()) / points.back().time.value();
    }
  }
  links.harness.broadcast(std::span(&bytes_per_s, 1), a);
  return BytesPerSecond(bytes_per_s);
}

Cluster measure_links(const LinkGroup& links, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep) {
  Communicator& world = links.harness;
  const std::size_t ranks = world.size();
  HETEROPERF_EXPECT(descriptors.size() == ranks && clusters.ranks() == world.size());
  HETEROPERF_EXPECT(std::is_sorted(sweep.sizes.begin(), sweep.sizes.end(), std::less_equal<>()));
  HETEROPERF_EXPECT(sweep.sizes.empty() || sweep.sizes.back() > Bytes(0));
  std::vector<Task> tasks = world.size() <= sweep.all_pairs_up_to
                                ? tasks_for_all_pairs(world.size())
                                : tasks_for_clusters(clusters, descriptors);
  const std::vector<Bytes> sizes = sizes_of(sweep);
  std::vector<std::vector<LinkCurve::Point>> measured(tasks.size());  // where this rank leads
  const auto rounds = disjoint_rounds(hosts_of(tasks, descriptors));
  for (std::size_t done = 0; done < rounds.size(); ++done) {
    if (sweep.before_round) sweep.before_round(done, rounds.size());
    world.barrier();
    for (const std::size_t t : rounds[done]) {
      const RankId a = tasks[t].a, b = tasks[t].b;
      if (world.rank() != a && world.rank() != b) continue;
      measured[t] = ping_pong(links, {a, b, sizes, sweep.budget});
    }
  }

  Cluster cluster;
  cluster.cards = all_cards(descriptors);
  for (std::size_t r = 0; r < ranks; ++r) {
    cluster.ranks.push_back(
        place_of(descriptors[r], clusters.clusters[clusters.cluster_of(RankId(r))].label));
  }
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].link.curve = share_curve(world, tasks[t].a, sizes, measured[t]);
    cluster.links.push_back(std::move(tasks[t].link));
  }
  return cluster;
}

}  // namespace heteroperf
