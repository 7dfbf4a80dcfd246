#include "runners/cluster/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "metrics/base/error.hpp"

// A layout is a grid of tiles: the boundaries along each dimension cut the tensor, and a list per
// tile names its holders.

namespace heteroperf {
namespace {

using Boundaries = std::vector<std::int64_t>;

constexpr std::uint64_t most_elements = std::uint64_t{1} << 62;

/// Multiplies up to most_elements; neither factor is negative.
std::uint64_t times(std::uint64_t a, std::int64_t b) {
  const auto factor = static_cast<std::uint64_t>(b);
  return factor != 0 && a > most_elements / factor ? most_elements : a * factor;
}

std::string name_of(std::size_t dim) { return fmt::format("dimension {}", dim); }

/// Notes too many dimensions, negative extents and tensors beyond 2^62 elements.
void check_shape(const Layout::Shape& shape, ProblemList& problems) {
  if (shape.size() > max_layout_dims)
    problems.add(fmt::format("a layout of {} dimensions", shape.size()),
                 fmt::format("at most {}", max_layout_dims), "Join some that are never cut.");
  std::uint64_t count = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0)
      problems.add(fmt::format("{} has extent {}", name_of(dim), shape[dim]), "is negative");
    if (shape[dim] > 0) count = times(count, shape[dim]);
  }
  if (count >= most_elements)
    problems.add(fmt::format("shape {} is too large", fmt::join(shape, "x")),
                 "2^62 elements or more");
}

/// Notes boundaries that do not lead from 0 to the extent in order.
void check_boundaries(std::size_t dim, std::int64_t extent, const Boundaries& at,
                      ProblemList& problems) {
  const std::string what = fmt::format("{} cut at {}", name_of(dim), fmt::join(at, ","));
  if (at.size() < 2) return problems.add(what, "needs at least a begin and an end");
  if (at.front() != 0) problems.add(what, "does not begin at 0");
  if (at.back() != extent) problems.add(what, fmt::format("does not end at its extent {}", extent));
  if (!std::is_sorted(at.begin(), at.end())) problems.add(what, "boundaries fall");
}

/// Notes a tile that nobody holds, and ranks that are negative or hold it twice.
void check_holders(std::size_t tile, const std::vector<RankId>& ranks, bool has_elements,
                   ProblemList& problems) {
  if (ranks.empty() && has_elements)
    problems.add(fmt::format("nobody holds tile {}", tile), "it has elements");
  if (!ranks.empty() && ranks.front().value() < 0)
    problems.add(fmt::format("tile {} is held by rank {}", tile, ranks.front().value()),
                 "is negative");
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (ranks[i] == ranks[i - 1])
      problems.add(fmt::format("rank {} holds tile {} twice", ranks[i].value(), tile));
}

/// Returns the part along every dimension of the tile with that number.
std::array<std::size_t, max_layout_dims> parts_of(std::size_t tile,
                                                  const std::vector<Boundaries>& boundaries) {
  std::array<std::size_t, max_layout_dims> parts{};
  for (std::size_t dim = boundaries.size(); dim-- > 0;) {
    const std::size_t count = boundaries[dim].size() - 1;
    parts[dim] = tile % count;
    tile /= count;
  }
  return parts;
}

/// Counts the tiles that the boundaries make.
std::size_t tile_count(const std::vector<Boundaries>& boundaries) {
  std::size_t tiles = 1;
  for (const Boundaries& at : boundaries) tiles *= at.size() - 1;
  return tiles;
}

}  // namespace

std::int64_t Box::count() const {
  std::int64_t count = 1;
  for (std::size_t dim = 0; dim < dims; ++dim) count *= extent(dim);
  return count;
}

std::string to_string(const Box& box) {
  if (box.dims == 0) return "scalar";
  std::string text;
  for (std::size_t dim = 0; dim < box.dims; ++dim)
    text += fmt::format("{}[{},{})", dim ? "x" : "", box.first[dim], box.last[dim]);
  return text;
}

Layout::Layout() : holders_{{RankId(0)}} {}

Layout::Layout(Shape shape, std::vector<std::vector<std::int64_t>> boundaries,
               std::vector<std::vector<RankId>> holders)
    : shape_(std::move(shape)), boundaries_(std::move(boundaries)), holders_(std::move(holders)) {
  ProblemList problems;
  check_shape(shape_, problems);
  if (boundaries_.size() != shape_.size())
    problems.add(fmt::format("boundaries for {} dimensions", boundaries_.size()),
                 fmt::format("the shape {} has {}", fmt::join(shape_, "x"), shape_.size()));
  for (std::size_t dim = 0; dim < std::min(shape_.size(), boundaries_.size()); ++dim)
    check_boundaries(dim, shape_[dim], boundaries_[dim], problems);
  for (auto& ranks : holders_) std::sort(ranks.begin(), ranks.end());

  const bool has_tiles = problems.empty();
  if (has_tiles && holders_.size() != tile_count(boundaries_))
    problems.add(fmt::format("holders for {} tiles", holders_.size()),
                 fmt::format("the boundaries make {}", tile_count(boundaries_)));
  const bool has_boxes = problems.empty();
  for (std::size_t tile = 0; tile < holders_.size(); ++tile)
    check_holders(tile, holders_[tile], has_boxes && box(tile).count() > 0, problems);
  problems.throw_if_any();
}

Box Layout::box(std::size_t tile) const {
  Box box;
  box.dims = shape_.size();
  const auto parts = parts_of(tile, boundaries_);
  for (std::size_t dim = 0; dim < box.dims; ++dim) {
    box.first[dim] = boundaries_[dim][parts[dim]];
    box.last[dim] = boundaries_[dim][parts[dim] + 1];
  }
  return box;
}

std::vector<std::size_t> Layout::tiles_of(RankId rank) const {
  std::vector<std::size_t> tiles;
  for (std::size_t tile = 0; tile < holders_.size(); ++tile)
    if (std::binary_search(holders_[tile].begin(), holders_[tile].end(), rank))
      tiles.push_back(tile);
  return tiles;
}

std::vector<RankId> Layout::ranks() const {
  std::vector<RankId> all;
  for (const auto& ranks : holders_) all.insert(all.end(), ranks.begin(), ranks.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::int64_t Layout::count() const {
  return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Layout::count(RankId rank) const {
  std::int64_t count = 0;
  for (const std::size_t tile : tiles_of(rank)) count += box(tile).count();
  return count;
}

}  // namespace heteroperf
