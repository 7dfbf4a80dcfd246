#pragma once

#include <cstddef>
#include <vector>

#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"

namespace heteroperf {

/// A share of the vector that one bridge of every cluster carries.
struct Lane {
  std::vector<RankId> tops;   ///< one per cluster
  double begin = 0, end = 1;  ///< part of the vector
};

/// One lane over the first bridges.
std::vector<Lane> leader_lanes(const RankClusters& clusters);

/// Every bridge carries its share of the vector. Where clusters cut it at different places, each
/// part between two cuts is a lane, so a bridge may serve several.
std::vector<Lane> split_rail_lanes(const RankClusters& clusters);

/// A stretch of a vector whose segments have one role.
struct Stretch {
  std::size_t begin = 0, count = 0, result_begin = 0, role = 0;
};

/// Cuts each stretch every `segment` elements and mixes them so that all progress alike: a
/// stretch of twice the length has two segments where another has one.
void cut_segments(const std::vector<Stretch>& stretches, std::size_t segment,
                  std::vector<VectorSegment>& segments);

/// Adds `whole`, cut by the lanes; the part of lane l has role whole.role + l.
void add_lanes(const std::vector<Lane>& lanes, Stretch whole, std::vector<Stretch>& stretches);

}  // namespace heteroperf
