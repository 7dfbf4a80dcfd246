#pragma once

#include <vector>

#include "runners/comm/algorithm.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/hybrid/routes.hpp"

namespace heteroperf {

/// Lanes, and what this rank does for each of them.
struct LanePlan {
  std::vector<Lane> lanes;
  std::vector<SegmentRole> roles;  ///< by root where there is one, then by lane
};

/// The plans of one group of several clusters, and vectors cut by them.
class LanePlans {
 public:
  /// `clusters` outlives this. `stage` is not automatic.
  LanePlans(const RankClusters& clusters, RankId self, InsideStage stage);

  const Routes& routes() const { return routes_; }
  /// leader or split_rail.
  const LanePlan& all_reduce(Algorithm algorithm) const {
    return algorithm == Algorithm::leader ? leader_ : split_rail_;
  }
  /// The way over bridges that fits where none is named.
  Algorithm fitting() const {
    return split_rail_.lanes.size() == 1 ? Algorithm::leader : Algorithm::split_rail;
  }
  /// Made on first use.
  const LanePlan& broadcasts();
  const LanePlan& reductions();

  /// Segments of at most `segment` elements. Valid until the next cut.
  std::span<const VectorSegment> cut(const LanePlan& plan, std::size_t count, std::size_t segment,
                                     std::size_t root = 0);
  /// Of all ranks' blocks, each with the role for its rank as root.
  std::span<const VectorSegment> cut_blocks(const LanePlan& plan, Counts counts,
                                            std::size_t segment);
  /// The same where a rank's own block alone is kept: results begin at its first element.
  std::span<const VectorSegment> cut_own_block(const LanePlan& plan, Counts counts,
                                               std::size_t segment, std::size_t own);

 private:
  template <class Route>
  void by_root(LanePlan& plan, Route route) const;

  std::size_t ranks_;
  Routes routes_;
  LanePlan leader_, split_rail_, broadcasts_, reductions_;
  std::vector<Stretch> stretches_;
  std::vector<VectorSegment> segments_;
};

/// Elements of a segment of `bytes`: at least one, and whole blocks of an encoded wire.
std::size_t segment_elements(std::size_t bytes, DataType type, WireFormat wire);

}  // namespace heteroperf
