#include "runners/comm/discovery/agglomeration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "metrics/base/error.hpp"
#include "runners/comm/discovery/bandwidth_partition.hpp"

namespace heteroperf {
namespace {

using Ranks = std::vector<std::size_t>;

RankId id_of(std::size_t rank) { return RankId(static_cast<std::int32_t>(rank)); }

std::string rate_text(double bytes_per_s) { return fmt::format("{:.3g} GB/s", bytes_per_s * 1e-9); }

double best_of(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

class Agglomeration {
 public:
  Agglomeration(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                const AgglomerationConfig& config)
      : ranks_(ranks), measure_(measure), config_(config) {}

  RankClusters run();

 private:
  std::vector<Ranks> groups_by_kind() const;
  double bandwidth(std::size_t a, std::size_t b);
  bool shares_cores(const Ranks& host) const;
  double inside(const Ranks& group);
  std::vector<Ranks> cut_where_thin(const Ranks& host);
  bool is_like(const Ranks& a, const Ranks& b) const;
  BandwidthTable table_of(const std::vector<Ranks>& groups);
  void hold_single_ranks_to_their_links(BandwidthTable& table) const;
  RankCluster cluster_of(Ranks ranks, const std::string& free_label) const;
  std::string reason(const BandwidthTable& table, const std::vector<Ranks>& parts) const;
  std::string gap_text(const BandwidthTable& table, const std::vector<Ranks>& parts) const;
  std::string kinds_text() const;

  const std::vector<RankDescriptor>& ranks_;
  const MeasureBandwidth& measure_;
  const AgglomerationConfig& config_;
  std::map<std::pair<std::size_t, std::size_t>, double> measured_;
};

/// A label makes a group by itself, whatever its ranks are.
std::vector<Ranks> Agglomeration::groups_by_kind() const {
  using Kind = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Kind, Ranks> groups;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankDescriptor& rank = ranks_[r];
    const bool has_label = !rank.label.empty();
    groups[has_label ? Kind(rank.label, "", "", "", "")
                     : Kind("", rank.host, rank.vendor, rank.model, rank.library)]
        .push_back(r);
  }
  std::vector<Ranks> list;
  for (auto& [ignored, members] : groups) list.push_back(std::move(members));
  std::sort(list.begin(), list.end());
  return list;
}

double Agglomeration::bandwidth(std::size_t a, std::size_t b) {
  const auto [entry, is_new] = measured_.emplace(std::minmax(a, b), 0.0);
  if (is_new) {
    const double value = measure_(id_of(entry->first.first), id_of(entry->first.second)).value();
    entry->second = value > 0 ? value : 0;  // also where it is not a number
  }
  return entry->second;
}

/// What the rank with the slowest of them has as its best link inside. Of hosts too large to be
/// checked, the first pair stands for all.
double Agglomeration::inside(const Ranks& group) {
  if (group.size() > static_cast<std::size_t>(config_.checked_per_host)) {
    return bandwidth(group[0], group[1]);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t a : group) {
    double best = 0;
    for (const std::size_t b : group) {
      if (a != b) best = std::max(best, bandwidth(a, b));
    }
    least = std::min(least, best);
  }
  return least;
}

/// A message to a rank that waits for a core seems to have a thin link.
bool Agglomeration::shares_cores(const Ranks& host) const {
  const std::size_t cores = ranks_[host.front()].host_cores;
  return cores > 0 && host.size() > cores;
}

/// Ranks of one host may be as far apart as those of two: islands of accelerators, emulated links.
std::vector<Ranks> Agglomeration::cut_where_thin(const Ranks& host) {
  const bool is_labelled = !ranks_[host.front()].label.empty();
  const bool is_large = host.size() > static_cast<std::size_t>(config_.checked_per_host);
  if (host.size() == 1 || is_labelled || is_large || shares_cores(host)) return {host};
  std::vector<Ranks> single;
  for (const std::size_t rank : host) single.push_back({rank});
  std::vector<Ranks> parts = partition(table_of(single), 2 * config_.gap);
  for (Ranks& part : parts) {
    for (std::size_t& item : part) item = host[item];
  }
  return parts;
}

bool Agglomeration::is_like(const Ranks& a, const Ranks& b) const {
  const RankDescriptor &x = ranks_[a.front()], &y = ranks_[b.front()];
  return x.label.empty() && y.label.empty() && x.vendor == y.vendor && x.library == y.library;
}

BandwidthTable Agglomeration::table_of(const std::vector<Ranks>& groups) {
  const std::size_t n = groups.size();
  BandwidthTable table{std::vector<double>(n, 0), std::vector<bool>(n, false),
                       std::vector(n, std::vector<double>(n, BandwidthTable::unlike))};
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      if (!is_like(groups[a], groups[b])) continue;
      table.between[a][b] = table.between[b][a] = bandwidth(groups[a].front(), groups[b].front());
    }
  }
  for (std::size_t a = 0; a < n; ++a) {
    const bool has_like = n > 1 && best_of(table.between[a]) >= 0;
    table.is_single[a] = groups[a].size() == 1;
    // Nothing is compared with a group that no other is like.
    if (has_like && !table.is_single[a]) table.own[a] = inside(groups[a]);
  }
  hold_single_ranks_to_their_links(table);
  return table;
}

/// A single rank is held to its best link. One whose links are all alike has no near neighbour and
/// is held to the best of all: else two of them, each behind a thin link, would make a cluster.
void Agglomeration::hold_single_ranks_to_their_links(BandwidthTable& table) const {
  double largest = best_of(table.own);
  for (const std::vector<double>& links : table.between) {
    largest = std::max(largest, best_of(links));
  }
  for (std::size_t a = 0; a < table.size(); ++a) {
    if (!table.is_single[a]) continue;
    const double best = best_of(table.between[a]);
    double least = best;
    for (const double link : table.between[a]) {
      if (link >= 0) least = std::min(least, link);
    }
    table.own[a] = best > config_.gap * least ? best : largest;
  }
}

RankCluster Agglomeration::cluster_of(Ranks members, const std::string& free_label) const {
  std::sort(members.begin(), members.end());
  const std::string& given = ranks_[members.front()].label;
  RankCluster cluster{given.empty() ? free_label : given, {}, {}};
  std::vector<BridgeCandidate> candidates;
  for (const std::size_t rank : members) {
    cluster.ranks.push_back(id_of(rank));
    candidates.push_back({id_of(rank), ranks_[rank].cards});
  }
  cluster.bridges = choose_bridges(candidates, config_.most_bridges);
  return cluster;
}

/// The two parts that came nearest to merging, and why they did not.
std::string Agglomeration::gap_text(const BandwidthTable& table,
                                    const std::vector<Ranks>& parts) const {
  double least = std::numeric_limits<double>::infinity(), link = 0, own = 0;
  for (std::size_t a = 0; a < parts.size(); ++a) {
    for (std::size_t b = a + 1; b < parts.size(); ++b) {
      const double between = best_link(table, parts[a], parts[b]);
      if (between < 0) continue;
      const double held_to = reference(table, parts[a], parts[b]);
      const double ratio = held_to / std::max(between, 1.0);
      if (ratio >= least) continue;
      least = ratio;
      link = between;
      own = held_to;
    }
  }
  if (!std::isfinite(least)) return {};
  return fmt::format("bandwidth gap {:.3g}x: {} inside, {} between (threshold {:.3g}x)", least,
                     rate_text(own), rate_text(link), config_.gap);
}

std::string Agglomeration::kinds_text() const {
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

std::string Agglomeration::reason(const BandwidthTable& table,
                                  const std::vector<Ranks>& parts) const {
  if (ranks_.size() == 1) return "one rank";
  if (table.size() == 1 && measured_.empty()) {
    const std::string ranks = fmt::format("one host: {} ranks", ranks_.size());
    const std::uint32_t cores = ranks_.front().host_cores;
    return cores > 0 && ranks_.size() > cores
               ? fmt::format("{} share {} cores, which hides how they are linked", ranks, cores)
               : fmt::format("{}, too many to measure each link", ranks);
  }
  double slowest = std::numeric_limits<double>::infinity();
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

RankClusters Agglomeration::run() {
  std::vector<Ranks> groups;
  for (const Ranks& kind : groups_by_kind()) {
    for (Ranks& part : cut_where_thin(kind)) groups.push_back(std::move(part));
  }
  std::sort(groups.begin(), groups.end());
  const BandwidthTable table = table_of(groups);
  const std::vector<Ranks> parts = partition(table, config_.gap);

  RankClusters found{{}, reason(table, parts)};
  std::set<std::string> taken;
  for (const RankDescriptor& rank : ranks_) taken.insert(rank.label);
  int number = 0;
  for (const Ranks& part : parts) {
    Ranks members;
    for (const std::size_t group : part) {
      members.insert(members.end(), groups[group].begin(), groups[group].end());
    }
    while (taken.count(fmt::format("c{}", number)) != 0) ++number;
    found.clusters.push_back(cluster_of(std::move(members), fmt::format("c{}", number)));
    if (found.clusters.back().label == fmt::format("c{}", number)) ++number;
  }
  return found;
}

}  // namespace

RankClusters agglomerate(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                         const AgglomerationConfig& config) {
  HETEROPERF_EXPECT(!ranks.empty() && config.gap >= 1 && config.checked_per_host >= 2 &&
                    config.most_bridges >= 1);
  RankClusters found = Agglomeration(ranks, measure, config).run();
  const bool all_labelled = std::all_of(
      ranks.begin(), ranks.end(), [](const RankDescriptor& rank) { return !rank.label.empty(); });
  if (all_labelled) found.reason = "labels given";
  return found;
}

}  // namespace heteroperf
