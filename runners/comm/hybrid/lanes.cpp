#include "runners/comm/hybrid/lanes.hpp"

#include <algorithm>
#include <cmath>

namespace heteroperf {
namespace {

/// Cuts closer than this are the same.
constexpr double cut_tolerance = 1e-9;
/// Long vectors are cut at multiples of it, which are whole blocks of the int8 wire.
constexpr std::size_t cut_unit = 256;

double total_share(const RankCluster& cluster) {
  double total = 0;
  for (const Bridge& bridge : cluster.bridges) total += bridge.share;
  return total;
}

/// The bridge that carries the place `at` in [0, 1) of the vector.
RankId bridge_at(const RankCluster& cluster, double at) {
  double end = 0;
  for (const Bridge& bridge : cluster.bridges) {
    end += bridge.share / total_share(cluster);
    if (at < end) return bridge.rank;
  }
  return cluster.bridges.back().rank;
}

std::vector<double> cuts_of_all(const RankClusters& clusters) {
  std::vector<double> cuts{0, 1};
  for (const RankCluster& cluster : clusters.clusters) {
    double end = 0;
    for (const Bridge& bridge : cluster.bridges) {
      cuts.push_back(end += bridge.share / total_share(cluster));
    }
  }
  std::sort(cuts.begin(), cuts.end());
  const auto same = [](double a, double b) { return b - a < cut_tolerance; };
  cuts.erase(std::unique(cuts.begin(), cuts.end(), same), cuts.end());
  return cuts;
}

std::size_t cut_at(std::size_t count, double part) {
  const auto exact = static_cast<std::size_t>(std::llround(static_cast<double>(count) * part));
  if (part >= 1 || exact >= count) return count;
  return exact < 16 * cut_unit ? exact : exact / cut_unit * cut_unit;
}

}  // namespace

std::vector<Lane> leader_lanes(const RankClusters& clusters) {
  Lane lane;
  for (const RankCluster& cluster : clusters.clusters) {
    lane.tops.push_back(cluster.bridges.front().rank);
  }
  return {lane};
}

std::vector<Lane> split_rail_lanes(const RankClusters& clusters) {
  const std::vector<double> cuts = cuts_of_all(clusters);
  std::vector<Lane> lanes;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    Lane lane{{}, cuts[k], k + 2 == cuts.size() ? 1.0 : cuts[k + 1]};
    for (const RankCluster& cluster : clusters.clusters) {
      lane.tops.push_back(bridge_at(cluster, (lane.begin + lane.end) / 2));
    }
    // A cut of a third cluster does not part what the same bridges carry.
    if (!lanes.empty() && lanes.back().tops == lane.tops) {
      lanes.back().end = lane.end;
    } else {
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}

void add_lanes(const std::vector<Lane>& lanes, Stretch whole, std::vector<Stretch>& stretches) {
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    const std::size_t begin = cut_at(whole.count, lanes[k].begin);
    const std::size_t end = cut_at(whole.count, lanes[k].end);
    if (begin == end) continue;
    stretches.push_back(
        {whole.begin + begin, end - begin, whole.result_begin + begin, whole.role + k});
  }
}

void cut_segments(const std::vector<Stretch>& stretches, std::size_t segment,
                  std::vector<VectorSegment>& segments) {
  struct Placed {
    double at;
    VectorSegment segment;
  };
  std::vector<Placed> placed;
  for (const Stretch& one : stretches) {
    const std::size_t parts = (one.count + segment - 1) / segment;
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t begin = k * segment;
      placed.push_back({(static_cast<double>(k) + 0.5) / static_cast<double>(parts),
                        {one.begin + begin, std::min(segment, one.count - begin),
                         one.result_begin + begin, one.role}});
    }
  }
  if (stretches.size() > 1) {
    std::stable_sort(placed.begin(), placed.end(),
                     [](const Placed& a, const Placed& b) { return a.at < b.at; });
  }
  segments.clear();
  for (const Placed& one : placed) segments.push_back(one.segment);
}

}  // namespace heteroperf
