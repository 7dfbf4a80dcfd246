// Which ranks form a cluster.
//
// First ranks form *groups* of one host, vendor, model and library. A host whose links differ much
// is cut further: ranks of one host may be as far apart as those of two (islands of accelerators,
// emulated links). Then groups that are alike in vendor and library are joined into *parts* by
// their bandwidths: two parts merge while their best link is at most `gap` times slower than their
// *reference*, the bandwidth that they have inside. The parts become the clusters. Explicit labels
// win over everything: a label makes a group by itself, which never merges.
//
// A merge that is allowed stays allowed whatever merges first, since the best link of two parts
// only grows and their reference only falls. So the result does not depend on any order.
#include "runners/comm/discovery/agglomeration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Up to this many ranks of one host all links among them are measured, and the host is cut where
/// they differ by more than twice the gap; more ranks of one host count as close together.
constexpr std::size_t checked_per_host = 16;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Indices of ranks, or of the items of a table; ascending.
using Members = std::vector<std::size_t>;

RankId id_of(std::size_t rank) { return RankId(rank); }

std::string rate_text(double bytes_per_s) { return fmt::format("{:.3g} GB/s", bytes_per_s * 1e-9); }

/// Items (groups of ranks) and the bandwidths among them, in bytes per second.
struct BandwidthTable {
  explicit BandwidthTable(std::size_t items)
      : inside(items, 0),
        is_single(items, false),
        between(items, std::vector<double>(items, unlike)) {}

  static constexpr double unlike = -1;
  /// The best link that the slowest rank of each item has inside the item; for a single rank, the
  /// link that it would have inside a cluster of its own.
  std::vector<double> inside;
  std::vector<bool> is_single;               ///< the item is one rank
  std::vector<std::vector<double>> between;  ///< symmetric; `unlike` for items that never merge

  std::size_t size() const { return inside.size(); }

  /// The best link between two parts.
  double best_link(const Members& a, const Members& b) const {
    double best = unlike;
    for (const std::size_t i : a) {
      for (const std::size_t j : b) best = std::max(best, between[i][j]);
    }
    return best;
  }
  /// The bandwidth to which a link between two parts is held: the lower of what the two have
  /// inside. Where a part is a single rank it is the higher one, since a single rank's best link
  /// says nothing about the other part.
  double reference(const Members& a, const Members& b) const {
    const double of_a = least_inside(a), of_b = least_inside(b);
    const bool any_single = is_single_part(a) || is_single_part(b);
    return any_single ? std::max(of_a, of_b) : std::min(of_a, of_b);
  }
  /// Returns the items of each part, ordered by first item.
  std::vector<Members> partition(double gap) const {
    std::vector<Members> parts;
    for (std::size_t i = 0; i < size(); ++i) parts.push_back({i});
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (std::size_t a = 0; a < parts.size(); ++a) {
        for (std::size_t b = a + 1; b < parts.size(); ++b) {
          if (parts[a].empty() || parts[b].empty()) continue;
          const double link = best_link(parts[a], parts[b]);
          if (link < 0 || link * gap < reference(parts[a], parts[b])) continue;
          parts[a].insert(parts[a].end(), parts[b].begin(), parts[b].end());
          std::sort(parts[a].begin(), parts[a].end());
          parts[b].clear();
          has_changed = true;
        }
      }
    }
    std::erase_if(parts, [](const Members& part) { return part.empty(); });
    std::sort(parts.begin(), parts.end());
    return parts;
  }

 private:
  bool is_single_part(const Members& part) const {
    return part.size() == 1 && is_single[part.front()];
  }
  double least_inside(const Members& part) const {
    double least = infinity;
    for (const std::size_t item : part) least = std::min(least, inside[item]);
    return least;
  }
};

class Agglomeration {
 public:
  Agglomeration(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                const AgglomerationConfig& config)
      : ranks_(ranks), measure_(measure), config_(config) {}

  RankClusters run() {
    std::vector<Members> groups;
    for (const Members& kind : groups_by_kind()) {
      for (Members& part : cut_where_thin(kind)) groups.push_back(std::move(part));
    }
    std::sort(groups.begin(), groups.end());
    const BandwidthTable table = table_of(groups);
    const std::vector<Members> parts = table.partition(config_.gap);

    RankClusters result{{}, reason(table, parts)};
    std::set<std::string> taken;
    for (const RankDescriptor& rank : ranks_) taken.insert(rank.label);
    int number = 0;
    for (const Members& part : parts) {
      Members members;
      for (const std::size_t group : part) {
        members.insert(members.end(), groups[group].begin(), groups[group].end());
      }
      while (taken.count(fmt::format("c{}", number)) != 0) ++number;
      const std::string free_label = fmt::format("c{}", number);
      result.clusters.push_back(cluster_of(std::move(members), free_label));
      if (result.clusters.back().label == free_label) ++number;
    }
    return result;
  }

 private:
  std::vector<Members> groups_by_kind() const {
    using Kind = std::tuple<std::string, std::string, std::string, std::string, std::string>;
    std::map<Kind, Members> groups;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const RankDescriptor& rank = ranks_[r];
      const bool has_label = !rank.label.empty();
      groups[has_label ? Kind(rank.label, "", "", "", "")
                       : Kind("", rank.host, rank.vendor, rank.model, rank.library)]
          .push_back(r);
    }
    std::vector<Members> list;
    for (auto& [ignored, members] : groups) list.push_back(std::move(members));
    std::sort(list.begin(), list.end());
    return list;
  }

  double bandwidth(std::size_t a, std::size_t b) {
    const auto [entry, is_new] = measured_.emplace(std::minmax(a, b), 0.0);
    if (is_new) {
      const double value = measure_(id_of(entry->first.first), id_of(entry->first.second)).value();
      entry->second = value > 0 ? value : 0;  // also where it is not a number
    }
    return entry->second;
  }

  bool is_too_large_to_check(const Members& group) const { return group.size() > checked_per_host; }

  /// The best link inside of the rank with the slowest one. In groups too large to be checked, the
  /// first pair stands for all.
  double inside(const Members& group) {
    if (is_too_large_to_check(group)) return bandwidth(group[0], group[1]);
    double least = infinity;
    for (const std::size_t a : group) {
      double best = 0;
      for (const std::size_t b : group) {
        if (a != b) best = std::max(best, bandwidth(a, b));
      }
      least = std::min(least, best);
    }
    return least;
  }

  std::vector<Members> cut_where_thin(const Members& host) {
    const RankDescriptor& first = ranks_[host.front()];
    // A message to a rank that waits for a core seems to have a thin link.
    const bool shares_cores = first.host_cores > 0 && host.size() > first.host_cores;
    if (host.size() == 1 || !first.label.empty() || is_too_large_to_check(host) || shares_cores) {
      return {host};
    }
    std::vector<Members> single;
    for (const std::size_t rank : host) single.push_back({rank});
    std::vector<Members> parts = table_of(single).partition(2 * config_.gap);
    for (Members& part : parts) {
      for (std::size_t& item : part) item = host[item];
    }
    return parts;
  }

  bool is_like(const Members& a, const Members& b) const {
    const RankDescriptor &x = ranks_[a.front()], &y = ranks_[b.front()];
    return x.label.empty() && y.label.empty() && x.vendor == y.vendor && x.library == y.library;
  }

  BandwidthTable table_of(const std::vector<Members>& groups) {
    BandwidthTable table(groups.size());
    for (std::size_t a = 0; a < table.size(); ++a) {
      for (std::size_t b = a + 1; b < table.size(); ++b) {
        if (!is_like(groups[a], groups[b])) continue;
        table.between[a][b] = table.between[b][a] = bandwidth(groups[a].front(), groups[b].front());
      }
    }
    for (std::size_t a = 0; a < table.size(); ++a) {
      table.is_single[a] = groups[a].size() == 1;
      // A group that is like no other is compared with nothing.
      const bool has_like = std::ranges::max(table.between[a]) >= 0;
      if (has_like && !table.is_single[a]) table.inside[a] = inside(groups[a]);
    }
    hold_single_ranks_to_their_links(table);
    return table;
  }

  /// A single rank is held to its best link. A rank whose links are all alike has no near neighbour
  /// and is held to the best link of all: else two such ranks, each behind a thin link, would make
  /// a cluster.
  void hold_single_ranks_to_their_links(BandwidthTable& table) const {
    double largest = std::ranges::max(table.inside);
    for (const auto& links : table.between) largest = std::max(largest, std::ranges::max(links));
    for (std::size_t a = 0; a < table.size(); ++a) {
      if (!table.is_single[a]) continue;
      const double best = std::ranges::max(table.between[a]);
      double least = best;
      for (const double link : table.between[a]) {
        if (link >= 0) least = std::min(least, link);
      }
      table.inside[a] = best > config_.gap * least ? best : largest;
    }
  }

  RankCluster cluster_of(Members members, const std::string& free_label) const {
    std::sort(members.begin(), members.end());
    const std::string& given = ranks_[members.front()].label;
    RankCluster cluster{given.empty() ? free_label : given, {}, {}};
    std::vector<BridgeCandidate> candidates;
    for (const std::size_t rank : members) {
      cluster.ranks.push_back(id_of(rank));
      candidates.push_back({id_of(rank), ranks_[rank].cards});
    }
    cluster.bridges = choose_bridges(candidates, most_bridges);
    return cluster;
  }

  /// Names the two parts that came nearest to merging, and why they did not.
  std::string gap_text(const BandwidthTable& table, const std::vector<Members>& parts) const {
    double least = infinity, nearest_link = 0, nearest_reference = 0;
    for (std::size_t a = 0; a < parts.size(); ++a) {
      for (std::size_t b = a + 1; b < parts.size(); ++b) {
        const double link = table.best_link(parts[a], parts[b]);
        if (link < 0) continue;
        const double reference = table.reference(parts[a], parts[b]);
        const double ratio = reference / std::max(link, 1.0);
        if (ratio >= least) continue;
        least = ratio;
        nearest_link = link;
        nearest_reference = reference;
      }
    }
    if (!std::isfinite(least)) return {};
    return fmt::format("bandwidth gap {:.3g}x: {} inside, {} between (threshold {:.3g}x)", least,
                       rate_text(nearest_reference), rate_text(nearest_link), config_.gap);
  }

  std::string kinds_text() const {
    std::set<std::string> kinds;
    std::size_t labelled = 0;
    for (const RankDescriptor& rank : ranks_) {
      if (rank.label.empty()) kinds.insert(rank.vendor + " " + rank.library);
      labelled += rank.label.empty() ? 0 : 1;
    }
    std::string text;
    if (kinds.size() > 1) text = "unlike devices or libraries";
    for (const std::string& kind : kinds) {
      if (kinds.size() > 1) text += (kind == *kinds.begin() ? ": " : ", ") + kind;
    }
    if (labelled == 0) return text;
    return text + (text.empty() ? "" : "; ") + fmt::format("labels given for {} ranks", labelled);
  }

  /// Tells a reader in a line what decided.
  std::string reason(const BandwidthTable& table, const std::vector<Members>& parts) const {
    if (ranks_.size() == 1) return "one rank";
    if (table.size() == 1 && measured_.empty()) {
      const std::string ranks = fmt::format("one host: {} ranks", ranks_.size());
      const std::uint32_t cores = ranks_.front().host_cores;
      return cores > 0 && ranks_.size() > cores
                 ? fmt::format("{} share {} cores, which hides how they are linked", ranks, cores)
                 : fmt::format("{}, too many to measure each link", ranks);
    }
    double slowest = infinity;
    for (const auto& [ignored, value] : measured_) slowest = std::min(slowest, value);
    const std::string links = fmt::format("links from {}", rate_text(slowest));
    if (table.size() == 1) return fmt::format("one host: {}", links);
    if (parts.size() == 1) {
      return fmt::format("no bandwidth gap above {:.3g}x among {} groups: {}", config_.gap,
                         table.size(), links);
    }
    const std::string gap = gap_text(table, parts), kinds = kinds_text();
    return gap + (gap.empty() || kinds.empty() ? "" : "; ") + kinds;
  }

  const std::vector<RankDescriptor>& ranks_;
  const MeasureBandwidth& measure_;
  const AgglomerationConfig& config_;
  std::map<std::pair<std::size_t, std::size_t>, double> measured_;
};

}  // namespace

RankClusters agglomerate(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                         const AgglomerationConfig& config) {
  HETEROPERF_EXPECT(!ranks.empty() && config.gap >= 1);
  RankClusters result = Agglomeration(ranks, measure, config).run();
  const bool all_labelled = std::all_of(
      ranks.begin(), ranks.end(), [](const RankDescriptor& rank) { return !rank.label.empty(); });
  if (all_labelled) result.reason = "labels given";
  return result;
}

RankClusters discover_clusters(const LinkGroup& links,
                               const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config) {
  return agglomerate(
      descriptors, [&](RankId a, RankId b) { return shared_bandwidth(links, a, b); }, config);
}

}  // namespace heteroperf
