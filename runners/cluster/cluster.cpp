#include "runners/cluster/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "metrics/base/error.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/cluster/rank_clusters.hpp"

// A description may come from a person, so check_cluster() looks at everything before it complains:
// names that are referred to, each pair of ranks, which needs exactly one link, and the efficiency
// entries. All problems are thrown together.

namespace heteroperf {
namespace {

/// Orders a pair, because a link is the same in both directions.
template <class End>
std::pair<End, End> ordered(const End& a, const End& b) {
  return std::minmax(a, b);
}

/// Returns names that may be referred to, each once, and notes empty and repeated ones.
std::vector<std::string> unique_names(const char* what, std::vector<std::string> names,
                                      ProblemList& problems) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) problems.add(fmt::format("a {} has no name", what));
    if (!seen.insert(name).second) {
      problems.add(fmt::format("the {} \"{}\" is there twice", what, name));
    }
  }
  return {seen.begin(), seen.end()};
}

/// Notes a name that refers to nothing, with the nearest known one.
void expect_known(const std::string& name, const char* what, const std::string& where,
                  const std::vector<std::string>& known, ProblemList& problems) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  if (name.empty()) return problems.add(fmt::format("{} names no {}", where, what));
  const std::string near = nearest_name(name, known);
  problems.add(fmt::format("{} names the {} \"{}\", which is not there", where, what, name), "",
               near.empty() ? "" : fmt::format("Did you mean \"{}\"?", near));
}

/// Writes a curve in a few numbers, for messages.
std::string text_of(const LinkCurve& curve) {
  if (curve.empty()) return "nothing";
  return fmt::format("{} s + {} B/s", curve.latency().value(), curve.bandwidth().value());
}

/// Checks a cluster description part by part.
class ClusterCheck {
 public:
  explicit ClusterCheck(const Cluster& cluster) : cluster_(cluster) {}

  void run() {
    check_cards();
    check_ranks();
    for (const Link& link : cluster_.links) check_link(link);
    check_coverage();
    check_efficiency();
    problems_.throw_if_any();
  }

 private:
  /// Checks bandwidths and bursts of the cards.
  void check_cards() {
    std::vector<std::string> names;
    for (const NetworkCard& card : cluster_.cards) {
      names.push_back(card.name);
      const double bandwidth = card.bandwidth.value();
      if (std::isfinite(bandwidth) && bandwidth >= 0) continue;
      problems_.add(fmt::format("the bandwidth of card \"{}\" is {} B/s", card.name, bandwidth),
                    "must be positive, or 0 where it is not known");
    }
    for (const NetworkCard& card : cluster_.cards) {
      if (card.burst == Bytes(0) || card.bandwidth.value() > 0) continue;
      problems_.add(fmt::format("card \"{}\" has a burst and no bandwidth", card.name));
    }
    unique_names("card", std::move(names), problems_);
  }

  /// Checks that every rank names a class, a cluster and cards that exist, and gathers the labels.
  void check_ranks() {
    std::vector<std::string> names, cards;
    for (const DeviceClass& device : cluster_.classes) names.push_back(device.name);
    classes_ = unique_names("device class", std::move(names), problems_);
    for (const NetworkCard& card : cluster_.cards) cards.push_back(card.name);
    if (cluster_.ranks.empty()) problems_.add("the cluster has no ranks");
    for (std::size_t r = 0; r < cluster_.ranks.size(); ++r) {
      const RankPlace& place = cluster_.ranks[r];
      const std::string where = fmt::format("rank {}", r);
      expect_known(place.device_class, "device class", where, classes_, problems_);
      for (const std::string& card : place.cards)
        expect_known(card, "card", where, cards, problems_);
      if (std::set<std::string>(place.cards.begin(), place.cards.end()).size() !=
          place.cards.size()) {
        problems_.add(where + " names a card twice");
      }
      if (place.cluster.empty()) problems_.add(where + " names no cluster");
      ranks_of_[place.cluster].emplace_back(static_cast<std::int32_t>(r));
    }
    for (const auto& [label, ignored] : ranks_of_) labels_.push_back(label);
  }

  /// Checks that a link is between two clusters or between two ranks, and not both.
  void check_link(const Link& link) {
    const bool has_labels = !link.from.empty() || !link.to.empty();
    if (link.ranks.has_value() == has_labels) {
      problems_.add("a link is between two clusters or between two ranks",
                    has_labels
                        ? fmt::format("this one names the clusters \"{}\" and \"{}\" and ranks",
                                      link.from, link.to)
                        : "this one names neither");
    } else if (has_labels) {
      check_label_pair(link);
    } else {
      check_rank_pair(link);
    }
  }

  void check_rank_pair(const Link& link) {
    const auto [a, b] = *link.ranks;
    const std::string between = fmt::format("ranks {} and {}", a.value(), b.value());
    const auto last = static_cast<std::int32_t>(cluster_.ranks.size()) - 1;
    if (a.value() < 0 || b.value() > last || a >= b) {
      problems_.add("a link is between " + between,
                    fmt::format("must be two different ranks from 0 to {}, in order", last));
      return;
    }
    note_curve(of_ranks_, ordered(a, b), link, between);
  }

  void check_label_pair(const Link& link) {
    expect_known(link.from, "cluster", "a link", labels_, problems_);
    if (link.to != link.from) expect_known(link.to, "cluster", "a link", labels_, problems_);
    note_curve(of_labels_, ordered(link.from, link.to), link,
               fmt::format("\"{}\" and \"{}\"", link.from, link.to));
  }

  /// Notes a pair with two curves, or with none.
  template <class Seen, class Pair>
  void note_curve(Seen& seen, const Pair& pair, const Link& link, const std::string& between) {
    if (link.curve.empty()) {
      problems_.add("the link between " + between +
                    " has neither latency and bandwidth nor points");
    }
    const auto [entry, is_new] = seen.emplace(pair, &link);
    if (is_new) return;
    const LinkCurve& first = entry->second->curve;
    if (first == link.curve) {
      problems_.add("the link between " + between + " is there twice");
    } else {
      problems_.add("asymmetric link between " + between,
                    fmt::format("{} and {}; a link is the same in both directions", text_of(first),
                                text_of(link.curve)),
                    "Give it once");
    }
  }

  /// Names, for each two clusters, the first pair of ranks without a link.
  void check_coverage(const std::string& a, const std::string& b) {
    for (const RankId x : ranks_of_[a]) {
      for (const RankId y : ranks_of_[b]) {
        if (x == y || of_ranks_.count(ordered(x, y)) != 0) continue;
        problems_.add(fmt::format("no link between ranks {} and {}", x.value(), y.value()), "",
                      fmt::format("Add one between \"{}\" and \"{}\"", a, b));
        return;
      }
    }
  }

  void check_coverage() {
    for (auto a = labels_.begin(); a != labels_.end(); ++a) {
      for (auto b = a; b != labels_.end(); ++b) {
        if (of_labels_.count(ordered(*a, *b)) == 0) check_coverage(*a, *b);
      }
    }
  }

  /// Checks that entries name a class and an operation, have a positive rate, and stand there once.
  void check_efficiency() {
    std::set<std::tuple<std::string, std::string, std::string, std::string>> seen;
    for (const Efficiency& entry : cluster_.efficiency) {
      const std::string where =
          fmt::format("the efficiency of {} {} {}", entry.operation, entry.shape, entry.precision);
      expect_known(entry.device_class, "device class", where, classes_, problems_);
      if (entry.operation.empty()) problems_.add(where + " names no operation");
      const double rate = entry.rate.value();
      if (!std::isfinite(rate) || !(rate > 0)) {
        problems_.add(fmt::format("{} is {} operations per second", where, rate),
                      "must be positive");
      }
      if (!seen.emplace(entry.device_class, entry.operation, entry.shape, entry.precision).second) {
        problems_.add(fmt::format("{} is there twice for \"{}\"", where, entry.device_class));
      }
    }
  }

  const Cluster& cluster_;
  ProblemList problems_;
  std::vector<std::string> classes_, labels_;
  std::map<std::string, std::vector<RankId>> ranks_of_;
  std::map<std::pair<RankId, RankId>, const Link*> of_ranks_;
  std::map<std::pair<std::string, std::string>, const Link*> of_labels_;
};

/// Looks up the cards of a rank; unknown ones get no bandwidth.
std::vector<NetworkCard> cards_of(const RankPlace& place, const std::vector<NetworkCard>& cards) {
  std::vector<NetworkCard> named;
  for (const std::string& name : place.cards) {
    const auto card = std::ranges::find(cards, name, &NetworkCard::name);
    named.push_back(card == cards.end() ? NetworkCard{name} : *card);
  }
  return named;
}

}  // namespace

const LinkCurve& Cluster::link(RankId a, RankId b) const {
  const auto size = static_cast<std::int32_t>(ranks.size());
  HETEROPERF_EXPECT(a != b && a.value() >= 0 && b.value() >= 0 && a.value() < size &&
                    b.value() < size);
  const std::pair<RankId, RankId> pair = ordered(a, b);
  const std::string& from = ranks[a.index()].cluster;
  const std::string& to = ranks[b.index()].cluster;
  const LinkCurve* of_labels = nullptr;
  for (const Link& link : links) {
    if (link.ranks == pair) return link.curve;
    const bool fits = (link.from == from && link.to == to) || (link.from == to && link.to == from);
    if (!link.ranks && fits) of_labels = &link.curve;
  }
  HETEROPERF_EXPECT(of_labels != nullptr);
  return *of_labels;
}

RankClusters Cluster::rank_clusters() const {
  std::vector<std::string> labels;
  for (const RankPlace& place : ranks) labels.push_back(place.cluster);
  RankClusters grouped = clusters_by_label(labels, static_cast<int>(labels.size()));
  grouped.reason = "labels of the cluster file";
  for (RankCluster& cluster : grouped.clusters) {
    std::vector<BridgeCandidate> candidates;
    for (const RankId rank : cluster.ranks) {
      candidates.push_back({rank, cards_of(ranks[rank.index()], cards)});
    }
    cluster.bridges = choose_bridges(candidates, most_bridges);
  }
  return grouped;
}

void check_cluster(const Cluster& cluster) { ClusterCheck(cluster).run(); }

std::vector<ClassRanks> ranks_by_class(const Cluster& cluster) {
  std::vector<ClassRanks> classes;
  for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
    const std::string& name = cluster.ranks[r].device_class;
    const auto known = std::ranges::find(classes, name, &ClassRanks::device_class);
    ClassRanks& members =
        known == classes.end() ? classes.emplace_back(ClassRanks{name, {}}) : *known;
    members.ranks.emplace_back(static_cast<std::int32_t>(r));
  }
  return classes;
}

const DeviceClass& class_of(const Cluster& cluster, const std::string& name) {
  const auto named = std::ranges::find(cluster.classes, name, &DeviceClass::name);
  HETEROPERF_EXPECT(named != cluster.classes.end());
  return *named;
}

const DeviceClass& class_of(const Cluster& cluster, RankId rank) {
  return class_of(cluster, cluster.ranks.at(rank.index()).device_class);
}

bool is_emulated(const Cluster& cluster) {
  std::string paced, real;
  for (const ClassRanks& members : ranks_by_class(cluster)) {
    (class_of(cluster, members.ranks.front()).emulated() ? paced : real) = members.device_class;
  }
  if (!paced.empty() && !real.empty()) {
    throw UserError(fmt::format("cluster '{}' mixes emulated and real devices", cluster.name),
                    fmt::format("'{}' is paced, '{}' is not", paced, real),
                    "Make all classes paced, or none");
  }
  return !paced.empty();
}

DeviceClass cpu_device_class(const Machine& machine, int ranks, int threads_per_rank) {
  HETEROPERF_EXPECT(ranks > 0 && threads_per_rank > 0);
  const Bytes memory = machine.usable_memory();
  return {.name = "cpu",
          .kind = DeviceKind::cpu,
          .memory = memory / static_cast<std::uint64_t>(ranks),
          .count = ranks,
          .threads = threads_per_rank,
          .rates = {}};
}

}  // namespace heteroperf
