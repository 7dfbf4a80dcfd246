// The two ways to sum gradients. Where all copies of a parameter are cut alike, rank i of every
// copy has the same elements at the same distance, and a stretch of the arena is one all-reduce in
// place. Where they are cut differently, a parameter is seen as {outer, extent, inner}
// around the dimension that is cut; the borders of all copies together cut `extent` into *pieces*
// that no copy cuts any further, and a reshard plan that sums moves them between the ranks.
#include "runners/engine/gradients/gradient_sum.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/reshard/reshard.hpp"
#include "runners/comm/slice.hpp"
#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t line_bytes = 64;

std::size_t unsigned_of(std::int64_t n) { return static_cast<std::size_t>(n); }

at::Tensor part_of(const at::Tensor& arena, const ArenaRange& range) {
  const c10::InferenceMode no_tape;
  return arena.narrow(0, range.begin, range.count());
}

class FlatSum final : public GradientSum {
 public:
  FlatSum(Communicator& group, const ArenaPart& part, SumTarget target)
      : group_(group), part_(part), slice_(part.range), target_(target) {
    if (target_ == SumTarget::all) return;
    const std::size_t ranks = group.size();
    const std::size_t unit = line_bytes / part.gradients.element_size();
    for (std::size_t r = 0; r < ranks; ++r) {
      counts_.push_back(even_slice(unsigned_of(part.range.count()), r, ranks, unit).count);
    }
    const Slice slice = block_of(counts_, group.rank().index());
    slice_.begin = part.range.begin + static_cast<std::int64_t>(slice.begin);
    slice_.end = part.range.begin + static_cast<std::int64_t>(slice.end());
  }

  // Reduce-scatter needs room for the sum of this rank's slice: source and target must not overlap.
  void run() override {
    const c10::InferenceMode no_tape;
    HostCopies copies(group_);
    const at::Tensor all = copies.of(part_.gradients);
    if (target_ == SumTarget::all) {
      group_.all_reduce(buffer_of(all));
    } else {
      const at::Tensor slice = slice_of(all), sum = room_like(slice);
      group_.reduce_scatter(buffer_of(all), buffer_of(sum), counts_, Reduction::sum);
      slice.copy_(sum);
    }
    copies.put_back();
  }

  // The slices of all ranks follow one another in the range, so gathering needs no room.
  void share() override {
    if (target_ == SumTarget::all) return;
    HostCopies copies(group_);
    const at::Tensor all = copies.of(part_.masters);
    group_.all_gather(buffer_of(slice_of(all)), buffer_of(all), counts_);
    copies.put_back();
  }

  std::vector<ArenaRange> owned() const override { return {slice_}; }

 private:
  at::Tensor slice_of(const at::Tensor& all) const {
    return part_of(all, {slice_.begin - part_.range.begin, slice_.end - part_.range.begin});
  }

  /// Room for a sum until it takes its slice's place.
  at::Tensor room_like(const at::Tensor& slice) {
    if (slice.is_cuda()) return at::empty(slice.sizes(), slice.options());
    if (!room_) room_ = std::make_unique<std::byte[]>(slice.nbytes());
    return at::from_blob(room_.get(), slice.sizes(),
                         at::TensorOptions().dtype(slice.scalar_type()));
  }

  Communicator& group_;
  ArenaPart part_;
  ArenaRange slice_;
  SumTarget target_;
  std::vector<std::size_t> counts_;
  std::unique_ptr<std::byte[]> room_;
};

/// The parameter as {elements before, extent, elements behind} its cut dimension.
struct Extents {
  std::int64_t outer = 1, extent = 1, inner = 1;
};

Extents extents_of(const Shape& shape, std::size_t dim) {
  const auto cut = shape.begin() + static_cast<std::ptrdiff_t>(dim);
  return {element_count(Shape(shape.begin(), cut)), *cut,
          element_count(Shape(cut + 1, shape.end()))};
}

using Holders = std::vector<ParameterHolder>;
using Intervals = std::vector<ParameterShard::Interval>;

/// Copies that hold all of a parameter go along with any cut.
std::size_t cut_dimension(const Holders& holders) {
  const auto cut = std::ranges::find_if(
      holders, [](const ParameterHolder& holder) { return !holder.shard.whole(); });
  return cut == holders.end() ? 0 : cut->shard.dim;
}

Intervals intervals_of(const ParameterShard& shard, std::int64_t extent) {
  return shard.whole() ? Intervals{{0, extent}} : shard.intervals;
}

/// All places where some copy cuts the dimension, in ascending order.
std::vector<std::int64_t> borders_of(const Holders& holders, std::int64_t extent) {
  std::vector<std::int64_t> borders{0, extent};
  for (const ParameterHolder& holder : holders) {
    for (const auto& interval : intervals_of(holder.shard, extent)) {
      borders.push_back(interval.first);
      borders.push_back(interval.first + interval.count);
    }
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

bool holds(const ParameterShard& shard, std::int64_t extent, std::int64_t row) {
  const Intervals intervals = intervals_of(shard, extent);
  return std::any_of(intervals.begin(), intervals.end(), [&](const auto& interval) {
    return row >= interval.first && row < interval.first + interval.count;
  });
}

/// The ranks that bring in a row of the cut dimension are the first of each copy that holds it.
enum class Which { first_of_copy, all };
std::vector<RankId> holders_of(const Holders& holders, std::int64_t extent, std::int64_t row,
                               Which which) {
  std::vector<RankId> ranks;
  const ParameterHolder* last = nullptr;
  for (const ParameterHolder& holder : holders) {
    if (!holds(holder.shard, extent, row)) continue;
    if (which == Which::first_of_copy && last != nullptr && last->copy == holder.copy) continue;
    ranks.push_back(holder.rank);
    last = &holder;
  }
  return ranks;
}

/// A tile for each piece that no copy cuts.
Layout pieces_on(Which which, const Holders& holders, const Extents& extents) {
  std::vector<std::int64_t> borders = borders_of(holders, extents.extent);
  std::vector<std::vector<RankId>> ranks;
  for (std::size_t tile = 0; tile + 1 < borders.size(); ++tile) {
    ranks.push_back(holders_of(holders, extents.extent, borders[tile], which));
  }
  return Layout({extents.outer, extents.extent, extents.inner},
                {{0, extents.outer}, std::move(borders), {0, extents.inner}}, std::move(ranks));
}

std::vector<std::int64_t> even_borders(std::int64_t begin, std::int64_t end, std::size_t parts) {
  std::vector<std::int64_t> borders;
  const auto count = static_cast<std::int64_t>(parts);
  for (std::int64_t p = 0; p < count; ++p) borders.push_back(begin + (end - begin) * p / count);
  return borders;
}

/// Part p of every piece, or of all rows, on copy p's summand.
Layout parts_of_copies(const Holders& holders, const Extents& extents) {
  const std::vector<std::int64_t> pieces = borders_of(holders, extents.extent);
  const std::size_t parts = holders.back().copy + 1;
  const std::size_t row_parts = extents.outer > 1 ? parts : 1, piece_parts = parts / row_parts;
  std::vector<std::int64_t> rows = even_borders(0, extents.outer, row_parts), borders;
  for (std::size_t p = 0; p + 1 < pieces.size(); ++p) {
    std::ranges::copy(even_borders(pieces[p], pieces[p + 1], piece_parts),
                      std::back_inserter(borders));
  }
  rows.push_back(extents.outer);
  borders.push_back(extents.extent);
  std::vector<std::vector<RankId>> owners;
  for (std::size_t tile = 0; tile < (rows.size() - 1) * (borders.size() - 1); ++tile) {
    const std::size_t row = tile / (borders.size() - 1), column = tile % (borders.size() - 1);
    const std::vector<RankId> summands =
        holders_of(holders, extents.extent, pieces[column / piece_parts], Which::first_of_copy);
    owners.push_back({summands[(row + column % piece_parts) % summands.size()]});
  }
  return Layout({extents.outer, extents.extent, extents.inner},
                {std::move(rows), std::move(borders), {0, extents.inner}}, std::move(owners));
}

/// A reshard between two arenas. In an arena a rank's intervals lie side by side in every row; in a
/// reshard's memory they follow one another as tiles.
class Move {
 public:
  Move(Communicator& group, ReshardPlan plan, const Extents& extents, const ParameterShard& shard,
       int tag)
      : group_(group),
        size_(size_of(plan.config.type)),
        tag_(tag),
        intervals_(intervals_of(shard, extents.extent)),
        inner_(extents.inner),
        resharder_(std::make_shared<ReshardPlan>(std::move(plan)), group.rank()) {
    for (const auto& interval : intervals_) width_ += interval.count * inner_;
    const Layout &from = resharder_.plan().from, &to = resharder_.plan().to;
    before_.resize(unsigned_of(from.count(group.rank())) * size_);
    after_.resize(unsigned_of(to.count(group.rank())) * size_);
    sent_ = rows_of(from);
    received_ = rows_of(to);
  }

  /// Replaces the values of this rank's part of the parameter by those after the reshard.
  void run(const at::Tensor& values) {
    HostCopies copies;
    const MutableBuffer part = buffer_of(copies.of(values));
    auto* const arena = static_cast<std::byte*>(part.data);
    for_each_row(sent_, arena, before_, [](std::byte* row, std::byte* tile, std::size_t bytes) {
      std::memcpy(tile, row, bytes);
    });
    resharder_.run(group_, ConstBuffer(before_.data(), before_.size() / size_, part.type),
                   MutableBuffer(after_.data(), after_.size() / size_, part.type), tag_);
    for_each_row(received_, arena, after_, [](std::byte* row, std::byte* tile, std::size_t bytes) {
      std::memcpy(row, tile, bytes);
    });
    copies.put_back();
  }

  const std::vector<ArenaRange>& received() const { return received_; }

 private:
  /// Calls visit(in the arena, in the tiles, bytes) for each row.
  void for_each_row(const std::vector<ArenaRange>& rows, std::byte* arena,
                    std::vector<std::byte>& tiles, auto visit) const {
    std::byte* tile = tiles.data();
    for (const ArenaRange& row : rows) {
      const std::size_t bytes = unsigned_of(row.count()) * size_;
      visit(arena + unsigned_of(row.begin) * size_, tile, bytes);
      tile += bytes;
    }
  }

  /// Contiguous elements of this rank's part, in the order of the layout's memory.
  std::vector<ArenaRange> rows_of(const Layout& layout) const {
    std::vector<ArenaRange> rows;
    for (const std::size_t tile : layout.tiles_of(group_.rank())) {
      const Box box = layout.box(tile);
      if (box.count() == 0) continue;
      const std::int64_t begin = place_of(box.first[1]) * inner_;
      for (std::int64_t o = box.first[0]; o < box.last[0]; ++o) {
        rows.push_back({o * width_ + begin, o * width_ + begin + box.extent(1) * inner_});
      }
    }
    return rows;
  }

  /// The place of a row of the full parameter among the rows that this rank holds.
  std::int64_t place_of(std::int64_t row) const {
    std::int64_t place = 0;
    for (const auto& interval : intervals_) {
      if (row >= interval.first && row < interval.first + interval.count) {
        return place + row - interval.first;
      }
      place += interval.count;
    }
    HETEROPERF_EXPECT(!"a tile lies outside its holder's intervals");
    return 0;
  }

  Communicator& group_;
  std::size_t size_;
  int tag_;
  Intervals intervals_;
  std::int64_t inner_, width_ = 0;
  Resharder resharder_;
  std::vector<std::byte> before_, after_;
  std::vector<ArenaRange> sent_, received_;
};

class ReshardedSum final : public GradientSum {
 public:
  ReshardedSum(ArenaPart part, std::unique_ptr<Move> sum, std::unique_ptr<Move> share)
      : part_(std::move(part)), sum_(std::move(sum)), share_(std::move(share)) {}

  void run() override { sum_->run(part_.gradients); }
  void share() override {
    if (share_) share_->run(part_.masters);
  }
  std::vector<ArenaRange> owned() const override {
    if (!share_) return {part_.range};
    std::vector<ArenaRange> ranges;
    for (const ArenaRange& row : sum_->received()) {
      ranges.push_back({part_.range.begin + row.begin, part_.range.begin + row.end});
    }
    return ranges;
  }

 private:
  ArenaPart part_;
  std::unique_ptr<Move> sum_, share_;  ///< nothing to share where every rank has all
};

}  // namespace

ArenaPart arena_part(const ParameterStore& store, const ArenaRange& range) {
  return {range, part_of(store.reduced_gradient(), range), part_of(store.master(), range)};
}

std::unique_ptr<GradientSum> flat_sum(Communicator& group, const ArenaPart& part,
                                      SumTarget target) {
  return std::make_unique<FlatSum>(group, part, target);
}

std::unique_ptr<GradientSum> resharded_sum(Communicator& group, const ArenaPart& part,
                                           const Shape& shape, const Holders& holders,
                                           SumTarget target, int tag) {
  const Extents extents = extents_of(shape, cut_dimension(holders));
  const auto here = std::ranges::find(holders, group.rank(), &ParameterHolder::rank);
  HETEROPERF_EXPECT(here != holders.end());
  const Layout summands = pieces_on(Which::first_of_copy, holders, extents),
               all = pieces_on(Which::all, holders, extents);
  ReshardConfig config;
  config.type = data_type(part.gradients.scalar_type());
  const auto move = [&](ReshardPlan plan, int first_tag) {
    return std::make_unique<Move>(group, std::move(plan), extents, here->shard, first_tag);
  };
  if (target == SumTarget::all) {
    return std::make_unique<ReshardedSum>(part, move(plan_sum(summands, all, config), tag),
                                          nullptr);
  }
  const Layout parts = parts_of_copies(holders, extents);
  return std::make_unique<ReshardedSum>(part, move(plan_sum(summands, parts, config), tag),
                                        move(plan_reshard(parts, all, config), tag + 1));
}

}  // namespace heteroperf
