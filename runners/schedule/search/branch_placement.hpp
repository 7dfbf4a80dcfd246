#pragma once

#include <string>
#include <vector>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// A branch's segments, with the work of each on every rank that it may lie on.
struct BranchWork {
  std::string name;
  std::vector<std::vector<double>> work;  ///< [rank][segment]
};

/// One way to lay branches on ranks.
struct BranchRanks {
  std::string name;
  std::vector<std::vector<int>> rank_of;  ///< [branch][segment]
  friend bool operator==(const BranchRanks& a, const BranchRanks& b) {
    return a.rank_of == b.rank_of;
  }
};

/// The placements that are worth a schedule:
///   chain        one branch after the other, cut where the ranks' work is most even
///   disjoint     every branch on ranks of its own, as many as its share of the work; in both
///                orders where ranks differ
///   same ranks   every branch over all ranks, from the first to the last
///   opposite directions, "X reversed"
///                as same ranks, but the named branches run from the last rank to the first
///   X on the first rank
///                the longest branch over all ranks, the others on its first one
/// Placements that agree in all ranks occur once. The result is the same for the same branches.
std::vector<BranchRanks> lay_branches(const std::vector<BranchWork>& branches);

/// A placement of a graph's branches.
struct BranchPlacement {
  std::string name;
  PipelineGraph graph;  ///< the given one, with ranks
};

/// lay_branches() for a graph without ranks. A *join* is a segment that several branches feed, that
/// feeds none, and that has less work than each of them (a loss). Joins follow the end of one
/// branch, each of which is a placement of its own, or, if there are several, one end each.
std::vector<BranchPlacement> branch_placements(const PipelineGraph& graph);

}  // namespace heteroperf
