// Lists the ways to lay branches on ranks. The segments of a branch stay in their order, so that a
// placement is a direction and a *cut* for each branch: which run of its segments lies on which
// rank. Cuts are chosen one branch after the other, the longest first, such that the busiest rank
// has the least work and, among equals, the ranks' work is most even; then each branch is cut
// again, now that the work of all others is known.
//
// Nothing here knows when work runs. A placement that looks even may wait long for its inputs, and
// one with less even ranks may fill those waits; that is for a schedule of each to tell.

#include "runners/schedule/search/branch_placement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace heteroperf {
namespace {

/// Directions are tried in all combinations of so many branches; of more, only one is reversed.
constexpr std::size_t most_combined = 4;
constexpr double without_end = std::numeric_limits<double>::infinity();

/// Sums of a branch's work before each segment, [place in a row of ranks][segments before].
using WorkSums = std::vector<std::vector<double>>;

/// Says how many of a branch's segments lie on each rank of a row of ranks that have `load`
/// already: the busiest rank gets as little as possible, then the sum of squares is least.
std::vector<int> cut(const WorkSums& sums, const std::vector<double>& load) {
  const std::size_t ranks = load.size(), n = sums.front().size() - 1;
  std::vector<std::vector<std::size_t>> from(ranks + 1, std::vector<std::size_t>(n + 1, 0));
  // Fills `from` by the least combine(before, load of the next rank), and gives the least of all.
  const auto least = [&](auto combine) {
    std::vector<double> row(n + 1, without_end);
    row[0] = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<double> next(n + 1, without_end);
      for (std::size_t end = 0; end <= n; ++end) {
        for (std::size_t begin = 0; begin <= end; ++begin) {
          const double on = load[rank] + sums[rank][end] - sums[rank][begin];
          const double value = combine(row[begin], on);
          if (!(value < next[end])) continue;
          next[end] = value;
          from[rank + 1][end] = begin;
        }
      }
      row = std::move(next);
    }
    return row[n];
  };
  const double busiest = least([](double before, double on) { return std::max(before, on); });
  const double limit = busiest * (1 + 1e-12);
  least([&](double before, double on) { return on > limit ? without_end : before + on * on; });
  std::vector<int> counts(ranks, 0);
  for (std::size_t rank = ranks, end = n; rank > 0; end = from[rank--][end]) {
    counts[rank - 1] = static_cast<int>(end - from[rank][end]);
  }
  return counts;
}

/// The ranks on which a branch may lie, from its first segment to its last.
using RankRow = std::vector<int>;

RankRow ranks_of(int first, int count) {
  RankRow row(count);
  std::iota(row.begin(), row.end(), first);
  return row;
}

class BranchLayouts {
 public:
  explicit BranchLayouts(const std::vector<BranchWork>& branches)
      : branches_(branches), ranks_(static_cast<int>(branches.front().work.size())) {
    for (const BranchWork& branch : branches) {
      double sum = 0;
      for (const auto& segments : branch.work) {
        sum += std::accumulate(segments.begin(), segments.end(), 0.0);
      }
      total_.push_back(sum / ranks_);
    }
    longest_ =
        static_cast<std::size_t>(std::max_element(total_.begin(), total_.end()) - total_.begin());
    for (std::size_t branch = 0; branch < branches.size(); ++branch) {
      if (branch != longest_) others_.push_back(branch);
    }
  }

  std::vector<BranchRanks> run() {
    add_chain();
    if (branches_.size() == 1) return std::move(layouts_);
    const RankRow all = ranks_of(0, ranks_);
    if (std::ssize(branches_) <= ranks_) add_disjoint();
    add("same ranks", std::vector<RankRow>(branches_.size(), all));
    for (const std::vector<std::size_t>& reversed : reversals()) {
      std::vector<RankRow> rows(branches_.size(), all);
      for (const std::size_t branch : reversed) {
        std::reverse(rows[branch].begin(), rows[branch].end());
      }
      add(branches_.size() == 2 ? "opposite directions" : names_of(reversed) + " reversed", rows);
    }
    std::vector<RankRow> first(branches_.size(), ranks_of(0, 1));
    first[longest_] = all;
    add(names_of(others_) + " on the first rank", first);
    return std::move(layouts_);
  }

 private:
  std::string names_of(const std::vector<std::size_t>& branches) const {
    std::vector<std::string> names;
    for (const std::size_t branch : branches) {
      const std::string& name = branches_[branch].name;
      names.push_back(name.empty() ? "the unnamed branch" : name);
    }
    return fmt::format("{}", fmt::join(names, " and "));
  }

  /// The sets of branches that run backwards; the longest one always runs forwards.
  std::vector<std::vector<std::size_t>> reversals() const {
    std::vector<std::vector<std::size_t>> sets;
    if (branches_.size() > most_combined) {
      for (const std::size_t branch : others_) sets.push_back({branch});
      sets.push_back(others_);
      return sets;
    }
    for (std::size_t chosen = 1; chosen < std::size_t{1} << others_.size(); ++chosen) {
      std::vector<std::size_t>& set = sets.emplace_back();
      for (std::size_t i = 0; i < others_.size(); ++i) {
        if ((chosen >> i & 1) != 0) set.push_back(others_[i]);
      }
    }
    return sets;
  }

  /// All branches as one, in turn.
  void add_chain() {
    BranchWork chain{"", std::vector<std::vector<double>>(ranks_)};
    for (const BranchWork& branch : branches_) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const std::vector<double>& more = branch.work[rank];
        chain.work[rank].insert(chain.work[rank].end(), more.begin(), more.end());
      }
    }
    const std::vector<int> along = cuts_along({chain}, {ranks_of(0, ranks_)}, {0}).front();
    BranchRanks& layout = layouts_.emplace_back(BranchRanks{"chain", {}});
    auto begin = along.begin();
    for (const BranchWork& branch : branches_) {
      const auto end = begin + static_cast<std::ptrdiff_t>(branch.work.front().size());
      layout.rank_of.emplace_back(begin, end);
      begin = end;
    }
  }

  /// Gives one rank more, again and again, to the branch whose ranks have the most work each.
  void add_disjoint() {
    std::vector<int> sizes(branches_.size(), 1);
    for (int left = ranks_ - static_cast<int>(branches_.size()); left > 0; --left) {
      std::size_t most = 0;
      for (std::size_t i = 1; i < branches_.size(); ++i) {
        if (total_[i] / sizes[i] > total_[most] / sizes[most]) most = i;
      }
      ++sizes[most];
    }
    std::vector<RankRow> forwards, backwards;
    int first = 0;
    for (const int size : sizes) {
      forwards.push_back(ranks_of(first, size));
      first += size;
      backwards.push_back(ranks_of(ranks_ - first, size));
    }
    add("disjoint", forwards);
    const bool alike = std::all_of(branches_.begin(), branches_.end(), [](const auto& branch) {
      return std::adjacent_find(branch.work.begin(), branch.work.end(), std::not_equal_to<>()) ==
             branch.work.end();
    });
    if (!alike) add("disjoint, the last branch first", backwards);
  }

  /// The rank of every segment of branches that lie along `rows`, cut in this order of branches.
  std::vector<std::vector<int>> cuts_along(const std::vector<BranchWork>& branches,
                                           const std::vector<RankRow>& rows,
                                           const std::vector<std::size_t>& order) const {
    constexpr int rounds = 3;
    std::vector<double> load(ranks_, 0);
    std::vector<std::vector<int>> rank_of(branches.size());
    const auto count_in = [&](std::size_t branch, double sign) {
      for (std::size_t segment = 0; segment < rank_of[branch].size(); ++segment) {
        const int rank = rank_of[branch][segment];
        load[rank] += sign * branches[branch].work[rank][segment];
      }
    };
    for (int round = 0; round < rounds; ++round) {
      for (const std::size_t branch : order) {
        count_in(branch, -1);
        rank_of[branch].clear();
        WorkSums sums;
        std::vector<double> loads;
        for (const int rank : rows[branch]) {
          const std::vector<double>& work = branches[branch].work[rank];
          sums.emplace_back(work.size() + 1, 0);
          std::partial_sum(work.begin(), work.end(), sums.back().begin() + 1);
          loads.push_back(std::max(0.0, load[rank]));
        }
        const std::vector<int> counts = cut(sums, loads);
        for (std::size_t i = 0; i < counts.size(); ++i) {
          rank_of[branch].insert(rank_of[branch].end(), counts[i], rows[branch][i]);
        }
        count_in(branch, 1);
      }
    }
    return rank_of;
  }

  /// Cuts the branches along their rows, the longest first.
  void add(const std::string& name, const std::vector<RankRow>& rows) {
    std::vector<std::size_t> order(branches_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return total_[a] > total_[b]; });
    BranchRanks layout{name, cuts_along(branches_, rows, order)};
    const bool known = std::find(layouts_.begin(), layouts_.end(), layout) != layouts_.end();
    if (!known) layouts_.push_back(std::move(layout));
  }

  const std::vector<BranchWork>& branches_;
  int ranks_;
  std::vector<double> total_;  // [branch]: work, the mean over ranks
  std::size_t longest_ = 0;
  std::vector<std::size_t> others_;  // all but the longest
  std::vector<BranchRanks> layouts_;
};

/// The branches of a graph without ranks, and its joins.
class GraphBranches {
 public:
  explicit GraphBranches(const PipelineGraph& graph) : graph_(graph) {
    graph_.unplaced = false;
    std::map<std::string, std::size_t> numbers;
    for (const SegmentId segment : topological_order(graph)) {
      const std::string& name = graph.segments[segment].branch;
      const auto [entry, added] = numbers.try_emplace(name, names_.size());
      if (added) {
        names_.push_back(name);
        segments_.emplace_back();
      }
      segments_[entry->second].push_back(segment);
      total_[name] += graph.segment_work(segment);
    }
    find_joins();
  }

  std::vector<BranchPlacement> placements() {
    std::vector<BranchWork> branches;
    for (std::size_t branch = 0; branch < names_.size(); ++branch) {
      std::vector<double> work;
      for (const SegmentId segment : segments_[branch]) {
        work.push_back(graph_.segment_work(segment));
      }
      branches.push_back({names_[branch], std::vector<std::vector<double>>(graph_.ranks, work)});
    }
    for (const BranchRanks& layout : lay_branches(branches)) {
      for (std::size_t branch = 0; branch < names_.size(); ++branch) {
        for (std::size_t i = 0; i < segments_[branch].size(); ++i) {
          graph_.segments[segments_[branch][i]].rank = layout.rank_of[branch][i];
        }
      }
      keep(layout.name);
    }
    return std::move(placements_);
  }

 private:
  /// Takes the joins out of the branches.
  void find_joins() {
    for (const SegmentId segment : graph_.segments.ids()) {
      std::vector<SegmentId> ends;
      std::set<std::string> feeding;
      bool feeds = false;
      for (const Edge& edge : graph_.edges) {
        feeds = feeds || edge.from == segment;
        if (edge.to != segment) continue;
        ends.push_back(edge.from);
        feeding.insert(graph_.segments[edge.from].branch);
      }
      const bool less = std::all_of(feeding.begin(), feeding.end(), [&](const std::string& name) {
        return name != graph_.segments[segment].branch &&
               graph_.segment_work(segment) < total_[name];
      });
      if (feeds || feeding.size() < 2 || !less) continue;
      joins_.push_back(segment);
      if (join_ends_.empty()) join_ends_ = ends;
      for (std::size_t branch = segments_.size(); branch-- > 0;) {
        std::erase(segments_[branch], segment);
        if (!segments_[branch].empty()) continue;
        segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(branch));
        names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(branch));
      }
    }
  }

  /// Keeps the present ranks, once for each end that the joins may follow, and once with each join
  /// at an end of its own.
  void keep(const std::string& name) {
    if (joins_.empty()) return keep_new(name);
    const auto follow = [&](std::size_t join, SegmentId end) {
      graph_.segments[joins_[join]].rank = graph_.segments[end].rank;
    };
    for (const SegmentId end : join_ends_) {
      for (std::size_t join = 0; join < joins_.size(); ++join) follow(join, end);
      keep_new(fmt::format("{}, joined after {}", name, graph_.segments[end].branch));
    }
    if (joins_.size() == 1) return;
    for (std::size_t join = 0; join < joins_.size(); ++join) {
      follow(join, join_ends_[join % join_ends_.size()]);
    }
    keep_new(name + ", joined at every end");
  }

  void keep_new(std::string name) {
    const bool known =
        std::any_of(placements_.begin(), placements_.end(),
                    [&](const BranchPlacement& placement) { return placement.graph == graph_; });
    if (!known) placements_.push_back({std::move(name), graph_});
  }

  PipelineGraph graph_;
  std::vector<std::string> names_;                // [branch], in the order of their first segments
  std::vector<std::vector<SegmentId>> segments_;  // [branch], so that edges go forwards
  std::map<std::string, double> total_;           // work by branch
  std::vector<SegmentId> joins_, join_ends_;      // the ends of the first join's inputs
  std::vector<BranchPlacement> placements_;
};

}  // namespace

std::vector<BranchRanks> lay_branches(const std::vector<BranchWork>& branches) {
  return BranchLayouts(branches).run();
}

std::vector<BranchPlacement> branch_placements(const PipelineGraph& graph) {
  return GraphBranches(graph).placements();
}

}  // namespace heteroperf
