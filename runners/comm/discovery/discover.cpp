#include "runners/comm/discovery/discover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/comm/discovery/descriptor_json.hpp"
#include "runners/comm/discovery/link_probe.hpp"
#include "runners/comm/slice.hpp"
#include "runners/comm/text_exchange.hpp"

namespace heteroperf {
namespace {

constexpr Seconds short_budget{0.004};
constexpr Bytes kibibyte{1024};

/// Measured by the pair, then told to everybody; the others wait for that.
BytesPerSecond shared_bandwidth(const LinkGroup& links, RankId a, RankId b) {
  const std::vector<Bytes> sizes = {Bytes(64), 64 * kibibyte, 1024 * kibibyte};
  std::array<double, 1> bytes_per_s = {0};
  if (links.harness.rank() == a || links.harness.rank() == b) {
    const auto points = ping_pong(links, {a, b, sizes, short_budget, Repetition::least});
    // Of the largest alone: a slope would turn noise in another into a rate that no link has.
    if (!points.empty() && points.back().time > Seconds(0)) {
      bytes_per_s[0] = static_cast<double>(points.back().size.value()) / points.back().time.value();
    }
  }
  links.harness.broadcast(std::span(bytes_per_s), a);
  return BytesPerSecond(bytes_per_s[0]);
}

/// One link to be measured, and for whom it stands.
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

/// The first rank of another host, since the network is what limits a cluster of hosts; else the
/// second rank.
RankId partner_inside(const RankCluster& cluster, const std::vector<RankDescriptor>& descriptors) {
  const std::string& host = descriptors[position(cluster.ranks.front())].host;
  for (const RankId rank : cluster.ranks) {
    if (descriptors[position(rank)].host != host) return rank;
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
    hosts.push_back({descriptors[position(task.a)].host, descriptors[position(task.b)].host});
  }
  return hosts;
}

std::vector<Bytes> sizes_of(const LinkSweep& sweep) {
  if (!sweep.sizes.empty()) return sweep.sizes;
  std::vector<Bytes> sizes;
  for (std::uint64_t bytes = 64; bytes <= 16 << 20; bytes *= 4) sizes.emplace_back(bytes);
  return sizes;
}

/// Runs the tasks. Every rank returns the times of all, in the order of tasks and sizes; 0 where a
/// size was left out.
class Sweep {
 public:
  Sweep(const LinkGroup& links, const std::vector<Task>& tasks, const LinkSweep& sweep)
      : links_(links),
        world_(links.harness),
        tasks_(tasks),
        sizes_(sizes_of(sweep)),
        budget_(sweep.budget) {}

  void run(const std::vector<std::size_t>& round) {
    world_.barrier();
    for (const std::size_t t : round) {
      const Task& task = tasks_[t];
      if (world_.rank() != task.a && world_.rank() != task.b) continue;
      const auto points = ping_pong(links_, {task.a, task.b, sizes_, budget_});
      if (world_.rank() == task.a) measured_[t] = points;
    }
  }

  /// The bits of whoever measured: a rank's own are gathered with all others.
  std::vector<LinkCurve> share();

 private:
  const LinkGroup& links_;
  Communicator& world_;
  const std::vector<Task>& tasks_;
  std::vector<Bytes> sizes_;
  Seconds budget_;
  std::map<std::size_t, std::vector<LinkCurve::Point>> measured_;
};

std::vector<LinkCurve> Sweep::share() {
  std::vector<double> mine, all(tasks_.size() * sizes_.size());
  for (const auto& [ignored, points] : measured_) {
    std::vector<double> times_s(sizes_.size(), 0);
    for (std::size_t i = 0; i < points.size(); ++i) times_s[i] = points[i].time.value();
    mine.insert(mine.end(), times_s.begin(), times_s.end());
  }
  std::vector<std::size_t> counts(static_cast<std::size_t>(world_.size()), 0);
  for (const Task& task : tasks_) counts[position(task.a)] += sizes_.size();
  world_.all_gather(std::span<const double>(mine), std::span(all), counts);

  std::vector<std::size_t> begin;
  for_each_block(counts, [&](std::size_t, Slice block) { begin.push_back(block.begin); });
  std::vector<LinkCurve> curves;
  for (const Task& task : tasks_) {
    std::size_t& at = begin[position(task.a)];
    std::vector<LinkCurve::Point> points;
    for (const Bytes size : sizes_) points.push_back({size, Seconds(all[at++])});
    curves.push_back(curve_of(std::move(points)));
  }
  return curves;
}

/// Every card once, in order of the first rank that has it.
std::vector<NetworkCard> all_cards(const std::vector<RankDescriptor>& descriptors) {
  std::vector<NetworkCard> cards;
  for (const RankDescriptor& descriptor : descriptors) {
    for (const NetworkCard& card : descriptor.cards) {
      const auto known = std::find_if(cards.begin(), cards.end(), [&](const NetworkCard& other) {
        return other.name == card.name;
      });
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

std::vector<RankDescriptor> gather_descriptors(Communicator& world, const RankDescriptor& mine) {
  const std::vector<std::string> texts = gather_texts(world, descriptor_text(mine));
  std::vector<RankDescriptor> descriptors;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    try {
      descriptors.push_back(
          parse_descriptor(texts[r], fmt::format("the description of rank {}", r)));
    } catch (const UserError& error) {
      throw SystemError(fmt::format("rank {} describes itself in a way that is not understood", r),
                        error.what(), "Start the same version of the program on every host");
    }
  }
  return descriptors;
}

RankClusters discover_clusters(Communicator& world, const RankDescriptor& mine,
                               const AgglomerationConfig& config) {
  return discover_clusters(world, gather_descriptors(world, mine), config);
}

RankClusters discover_clusters(Communicator& world, const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config) {
  return discover_clusters(LinkGroup{world, world}, descriptors, config);
}

RankClusters discover_clusters(const LinkGroup& links,
                               const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config) {
  return agglomerate(
      descriptors, [&](RankId a, RankId b) { return shared_bandwidth(links, a, b); }, config);
}

Cluster measure_links(Communicator& world, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep) {
  return measure_links(LinkGroup{world, world}, clusters, descriptors, sweep);
}

Cluster measure_links(const LinkGroup& links, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep) {
  Communicator& world = links.harness;
  const auto ranks = static_cast<std::size_t>(world.size());
  HETEROPERF_EXPECT(descriptors.size() == ranks && clusters.ranks() == world.size());
  HETEROPERF_EXPECT(std::is_sorted(sweep.sizes.begin(), sweep.sizes.end(), std::less_equal<>()));
  HETEROPERF_EXPECT(sweep.sizes.empty() || sweep.sizes.back() > Bytes(0));
  std::vector<Task> tasks = world.size() <= sweep.all_pairs_up_to
                                ? tasks_for_all_pairs(world.size())
                                : tasks_for_clusters(clusters, descriptors);
  Sweep running(links, tasks, sweep);
  const auto rounds = disjoint_rounds(hosts_of(tasks, descriptors));
  for (std::size_t done = 0; done < rounds.size(); ++done) {
    if (sweep.before_round) sweep.before_round(done, rounds.size());
    running.run(rounds[done]);
  }
  const std::vector<LinkCurve> curves = running.share();

  Cluster cluster;
  cluster.cards = all_cards(descriptors);
  for (std::size_t r = 0; r < ranks; ++r) {
    const RankId rank(static_cast<std::int32_t>(r));
    cluster.ranks.push_back(
        place_of(descriptors[r], clusters.clusters[clusters.cluster_of(rank)].label));
  }
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].link.curve = curves[t];
    cluster.links.push_back(std::move(tasks[t].link));
  }
  return cluster;
}

}  // namespace heteroperf
