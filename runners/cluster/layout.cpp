#include "runners/cluster/layout.hpp"

#include <fmt/format.h>

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
  HETEROPERF_EXPECT(shape_.size() <= max_layout_dims && boundaries_.size() == shape_.size());
  std::uint64_t count = 1;
  for (std::size_t dim = 0; dim < shape_.size(); ++dim) {
    const Boundaries& at = boundaries_[dim];
    HETEROPERF_EXPECT(at.size() >= 2 && at.front() == 0 && at.back() == shape_[dim]);
    HETEROPERF_EXPECT(std::ranges::is_sorted(at));
    if (shape_[dim] > 0) count = times(count, shape_[dim]);
  }
  HETEROPERF_EXPECT(count < most_elements && holders_.size() == tile_count(boundaries_));
  for (std::size_t tile = 0; tile < holders_.size(); ++tile) {
    std::vector<RankId>& ranks = holders_[tile];
    std::ranges::sort(ranks);
    HETEROPERF_EXPECT(ranks.empty() ? box(tile).count() == 0 : ranks.front().value() >= 0);
    HETEROPERF_EXPECT(std::ranges::adjacent_find(ranks) == ranks.end());
  }
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
