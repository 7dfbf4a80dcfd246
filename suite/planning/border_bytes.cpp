// The bytes that cross the borders between the components of a model in one step, twice.
//
// *Planned* is the sum over the messages of the reshard plans that the ranks carry out, of every
// edge of the schedule on which a tensor leaves a component, as often as micro-batches pass.
//
// *Least* is a lower bound for any way to bring the tensors where they are needed. Each tensor is
// cut into *cells*, so that a rank has or needs a cell wholly or not at all. Let every source of a
// cell (the stage that made it; of a gradient each stage that has a summand of it) be held by some
// ranks, and let R be the ranks that need the cell and lack some of its sources. Each of R receives
// it at least once: |R| transfers. Of n sources whose holders are disjoint, and none of them in R,
// n - 1 transfers are needed on top, since the transfers connect a rank of R with a holder of each,
// and a tree has one edge fewer than nodes. With one source that is the sum over the ranks of what
// they need and do not have. Tensors that several stages need count once per rank, however often
// the plan sends them.
#include "suite/planning/border_bytes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "runners/comm/reshard/reshard_plan.hpp"
#include "runners/comm/wire/wire_codec.hpp"
#include "runners/plan/ready/edge_layouts.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// The type of what operators make in a precision.
DataType output_type(Precision precision) {
  if (precision == Precision::fp64) return DataType::f64;
  return precision == Precision::bf16 ? DataType::bf16 : DataType::f32;
}

/// Formats other than fp32 change float32 tensors alone.
std::uint64_t bytes_on_wire(std::uint64_t bytes, DataType type, WireFormat format) {
  return type == DataType::f32 ? wire_bytes(format, bytes / size_of(type)) : bytes;
}

/// An element of a long message, without the scales of its blocks.
std::uint64_t element_bytes(DataType type, WireFormat format) {
  if (type != DataType::f32 || format == WireFormat::fp32) return size_of(type);
  return format == WireFormat::bf16 ? 2 : 1;
}

/// One tensor that leaves a component, on all edges over which it does so.
struct LeavingTensor {
  std::vector<Layout> from, to;
  std::uint64_t element_bytes = 0;  ///< in the shortest of the formats
  std::uint64_t micro_batches = 0;
};

bool intersects(const std::set<RankId>& ranks, const std::vector<RankId>& others) {
  return std::ranges::any_of(others, [&](RankId rank) { return ranks.contains(rank); });
}

/// The fewest transfers of a cell; `sources` has the holders of each.
std::uint64_t least_transfers(const std::vector<std::vector<RankId>>& sources,
                              const std::set<RankId>& needing) {
  std::set<RankId> lacking;
  for (const RankId rank : needing) {
    const bool has_all = std::ranges::all_of(sources, [&](const std::vector<RankId>& holders) {
      return std::ranges::find(holders, rank) != holders.end();
    });
    if (!has_all) lacking.insert(rank);
  }
  if (lacking.empty()) return 0;
  std::set<RankId> taken = lacking;
  std::uint64_t apart = 0;
  for (const std::vector<RankId>& holders : sources) {
    if (intersects(taken, holders)) continue;
    taken.insert(holders.begin(), holders.end());
    ++apart;
  }
  return lacking.size() + (apart > 0 ? apart - 1 : 0);
}

/// The holders of the tile that a cell lies in; none where the layout does not reach as far.
std::vector<RankId> holders_of(const Layout& layout, const Box& cell) {
  for (std::size_t tile = 0; tile < layout.tiles(); ++tile) {
    const Box box = layout.box(tile);
    bool inside = true;
    for (std::size_t dim = 0; dim < cell.dims; ++dim) {
      inside = inside && box.first[dim] <= cell.first[dim] && cell.last[dim] <= box.last[dim];
    }
    if (inside) return layout.holders(tile);
  }
  return {};
}

/// Visits every cell between the boundaries of all layouts.
template <class Visit>
void each_cell(const LeavingTensor& tensor, Visit&& visit) {
  const std::size_t dims = tensor.from.front().shape().size();
  std::vector<std::vector<std::int64_t>> cuts(dims);
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::set<std::int64_t> all;
    for (const std::vector<Layout>* side : {&tensor.from, &tensor.to}) {
      for (const Layout& layout : *side) {
        all.insert(layout.boundaries(dim).begin(), layout.boundaries(dim).end());
      }
    }
    cuts[dim].assign(all.begin(), all.end());
  }
  Box cell;
  cell.dims = dims;
  const auto next = [&](auto&& self, std::size_t dim) -> void {
    if (dim == dims) return visit(cell);
    for (std::size_t i = 0; i + 1 < cuts[dim].size(); ++i) {
      cell.first[dim] = cuts[dim][i];
      cell.last[dim] = cuts[dim][i + 1];
      self(self, dim + 1);
    }
  };
  next(next, 0);
}

std::uint64_t least_bytes(const LeavingTensor& tensor) {
  std::uint64_t elements = 0;
  each_cell(tensor, [&](const Box& cell) {
    std::vector<std::vector<RankId>> sources;
    for (const Layout& layout : tensor.from) sources.push_back(holders_of(layout, cell));
    std::set<RankId> needing;
    for (const Layout& layout : tensor.to) {
      const std::vector<RankId> holders = holders_of(layout, cell);
      needing.insert(holders.begin(), holders.end());
    }
    elements += least_transfers(sources, needing) * static_cast<std::uint64_t>(cell.count());
  });
  return elements * tensor.element_bytes * tensor.micro_batches;
}

/// Goes over the edges of one plan.
class BorderCount {
 public:
  BorderCount(const ModelGraph& graph, const ReadyPlan& ready, Precision precision)
      : ready_(ready), layouts_(graph, ready), type_(output_type(precision)) {
    for (const std::string& name : components_of(graph)) borders_.push_back({name, 0, 0});
  }

  std::vector<PlannedBorder> run() {
    if (borders_.size() == 1) return {};
    for (const EdgeId edge : ready_.schedule.graph.edges.ids()) {
      for (const Crossing what : {Crossing::activation, Crossing::gradient}) add(edge, what);
    }
    for (const auto& [key, tensor] : leaving_) {
      borders_[std::get<std::size_t>(key)].least_bytes += least_bytes(tensor);
    }
    return std::move(borders_);
  }

 private:
  void add(EdgeId edge, Crossing what) {
    const Edge& ends = ready_.schedule.graph.edges[edge];
    const auto stages = static_cast<int>(ready_.plan.stages.size());
    const WireFormat format =
        ready_.plan.wire(StageId(ends.from.value() % stages), StageId(ends.to.value() % stages));
    const std::uint64_t micro_batches = ready_.schedule.graph.segments[ends.from].micro_batches;
    for (EdgeTensor& tensor : layouts_.of(edge, what, ready_.plan.micro_batch_samples())) {
      if (!tensor.leaves) continue;
      const ReshardPlan plan = plan_reshard(tensor.from, tensor.to, whole_boxes(type_));
      for (const ReshardMessage& message : plan.messages) {
        borders_[*tensor.leaves].planned_bytes +=
            bytes_on_wire(message.size.value(), type_, format) * micro_batches;
      }
      const int direction = ends.from.value() / stages;
      LeavingTensor& all = leaving_[{direction, tensor.node, what, *tensor.leaves}];
      const std::uint64_t bytes = element_bytes(type_, format);
      all.element_bytes = all.from.empty() ? bytes : std::min(all.element_bytes, bytes);
      all.micro_batches = micro_batches;
      all.from.push_back(std::move(tensor.from));
      all.to.push_back(std::move(tensor.to));
    }
  }

  const ReadyPlan& ready_;
  EdgeLayouts layouts_;
  DataType type_;
  std::vector<PlannedBorder> borders_;
  /// By direction of the pipeline, node, what of it crosses, and the component that it leaves.
  std::map<std::tuple<int, NodeId, Crossing, std::size_t>, LeavingTensor> leaving_;
};

}  // namespace

std::vector<PlannedBorder> planned_borders(const ModelGraph& graph, const ReadyPlan& ready,
                                           Precision precision) {
  return BorderCount(graph, ready, precision).run();
}

}  // namespace heteroperf
