#include "runners/cluster/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "metrics/base/error.hpp"

// A layout is a grid of tiles: the boundaries along each dimension cut the tensor, and a list per
// tile names its holders. Layout::over() derives both from a mesh of ranks and the splits along its
// axes.

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

/// Returns the ranks as numbers, for messages.
std::vector<std::int32_t> values_of(const std::vector<RankId>& ranks) {
  std::vector<std::int32_t> values;
  for (const RankId rank : ranks) values.push_back(rank.value());
  return values;
}

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

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("{} cut at ", fmt::join(layout.shape(), "x"));
  for (std::size_t dim = 0; dim < layout.shape().size(); ++dim)
    text += fmt::format("{}{}", dim ? " | " : "", fmt::join(layout.boundaries(dim), ","));
  for (std::size_t tile = 0; tile < layout.tiles(); ++tile)
    text += fmt::format("{}{} on {}", tile ? ", " : ": ", to_string(layout.box(tile)),
                        fmt::join(values_of(layout.holders(tile)), " "));
  return text;
}

namespace {

/// Finds an axis of the mesh by its name.
std::optional<std::size_t> find_axis(const Mesh& mesh, const std::string& name) {
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis)
    if (mesh.axes[axis].name == name) return axis;
  return std::nullopt;
}

/// Notes axes without a size or named twice, and ranks that do not fill the mesh or are there
/// twice.
void check_mesh(const Mesh& mesh, ProblemList& problems) {
  std::uint64_t places = 1;
  std::set<std::string> names;
  for (const Mesh::Axis& axis : mesh.axes) {
    if (axis.size < 1)
      problems.add(fmt::format("mesh axis {} has size {}", axis.name, axis.size),
                   "must be positive");
    if (!names.insert(axis.name).second)
      problems.add(fmt::format("mesh axis {} is there twice", axis.name));
    places = times(places, std::max(axis.size, 1));
  }
  if (places != mesh.ranks.size())
    problems.add(fmt::format("a mesh of {} places has {} ranks", places, mesh.ranks.size()));
  std::set<RankId> seen;
  for (const RankId rank : mesh.ranks)
    if (!seen.insert(rank).second)
      problems.add(fmt::format("rank {} is in the mesh twice", rank.value()));
}

/// Lists the names of the mesh's axes.
std::vector<std::string> axis_names(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const Mesh::Axis& axis : mesh.axes) names.push_back(axis.name);
  return names;
}

/// Notes splits along axes that the mesh does not have, or that cut twice.
void check_axes(const Mesh& mesh, const std::vector<LayoutSplit>& splits, ProblemList& problems) {
  std::set<std::string> used;
  for (const LayoutSplit& split : splits)
    for (const std::string& name : split.axes) {
      const std::string near = nearest_name(name, axis_names(mesh));
      if (!find_axis(mesh, name))
        problems.add(fmt::format("the mesh has no axis {}", name),
                     fmt::format("it has {}", fmt::join(axis_names(mesh), ", ")),
                     near.empty() ? "" : fmt::format("Did you mean {}?", near));
      else if (!used.insert(name).second)
        problems.add(fmt::format("mesh axis {} cuts twice", name));
    }
}

/// Counts the parts into which a split cuts its dimension.
std::size_t parts_along(const Mesh& mesh, const LayoutSplit& split) {
  std::size_t parts = 1;
  for (const std::string& name : split.axes)
    if (const auto axis = find_axis(mesh, name))
      parts *= static_cast<std::size_t>(std::max(mesh.axes[*axis].size, 1));
  return parts;
}

/// Notes sizes that do not fill the dimension.
void check_sizes(const LayoutSplit& split, std::size_t parts, std::int64_t extent,
                 ProblemList& problems) {
  const std::string what =
      fmt::format("{} cut into {}", name_of(split.dim), fmt::join(split.sizes, "+"));
  if (split.sizes.size() != parts)
    problems.add(what, fmt::format("its axes have {} places", parts));
  std::uint64_t total = 0;
  for (const std::int64_t size : split.sizes) {
    if (size < 0) return problems.add(what, "a size is negative");
    total =
        std::min(most_elements, total + std::min(most_elements, static_cast<std::uint64_t>(size)));
  }
  if (extent >= 0 && total != static_cast<std::uint64_t>(extent))
    problems.add(what, fmt::format("its extent is {}", extent));
}

/// Notes splits of one dimension twice, or of none that exists.
void check_splits(const Layout::Shape& shape, const Mesh& mesh,
                  const std::vector<LayoutSplit>& splits, ProblemList& problems) {
  std::set<std::size_t> dims;
  for (const LayoutSplit& split : splits) {
    if (!dims.insert(split.dim).second)
      problems.add(fmt::format("{} is cut twice", name_of(split.dim)), "",
                   "Give one split with both axes.");
    if (split.dim >= shape.size())
      problems.add(fmt::format("{} is cut", name_of(split.dim)),
                   fmt::format("the tensor has {} dimensions", shape.size()));
    else if (!split.sizes.empty())
      check_sizes(split, parts_along(mesh, split), shape[split.dim], problems);
  }
}

/// Cuts an extent into parts that differ by one element at most.
Boundaries even_boundaries(std::int64_t extent, std::size_t parts) {
  const auto count = static_cast<std::int64_t>(parts);
  Boundaries at;
  for (std::int64_t i = 0; i <= count; ++i)  // computes ⌊extent·i/count⌋ without overflow
    at.push_back(extent / count * i + extent % count * i / count);
  return at;
}

/// Returns the boundaries that a split makes.
Boundaries boundaries_of(const LayoutSplit& split, const Mesh& mesh, std::int64_t extent) {
  if (split.sizes.empty()) return even_boundaries(extent, parts_along(mesh, split));
  Boundaries at{0};
  for (const std::int64_t size : split.sizes) at.push_back(at.back() + size);
  return at;
}

/// Returns the coordinate of the i-th rank along every axis.
std::vector<std::size_t> place_of(std::size_t i, const Mesh& mesh) {
  std::vector<std::size_t> place(mesh.axes.size());
  for (std::size_t axis = mesh.axes.size(); axis-- > 0;) {
    const std::size_t size = mesh.axes[axis].size;
    place[axis] = i % size;
    i /= size;
  }
  return place;
}

/// Returns which part of a split a place of the mesh holds.
std::size_t part_of(const LayoutSplit& split, const Mesh& mesh,
                    const std::vector<std::size_t>& place) {
  std::size_t part = 0;
  for (const std::string& name : split.axes) {
    const std::size_t axis = *find_axis(mesh, name);
    part = part * static_cast<std::size_t>(mesh.axes[axis].size) + place[axis];
  }
  return part;
}

}  // namespace

Layout Layout::over(const Shape& shape, const Mesh& mesh, const std::vector<LayoutSplit>& splits) {
  ProblemList problems;
  check_shape(shape, problems);
  check_mesh(mesh, problems);
  check_axes(mesh, splits, problems);
  check_splits(shape, mesh, splits, problems);
  problems.throw_if_any();

  std::vector<Boundaries> boundaries;
  for (const std::int64_t extent : shape) boundaries.push_back({0, extent});
  for (const LayoutSplit& split : splits)
    boundaries[split.dim] = boundaries_of(split, mesh, shape[split.dim]);

  std::vector<std::size_t> tile_step(shape.size(), 1);
  for (std::size_t dim = shape.size(); dim-- > 1;)
    tile_step[dim - 1] = tile_step[dim] * (boundaries[dim].size() - 1);
  std::vector<std::vector<RankId>> holders(tile_count(boundaries));
  for (std::size_t i = 0; i < mesh.ranks.size(); ++i) {
    const auto place = place_of(i, mesh);
    std::size_t tile = 0;
    for (const LayoutSplit& split : splits)
      tile += part_of(split, mesh, place) * tile_step[split.dim];
    holders[tile].push_back(mesh.ranks[i]);
  }
  return Layout(shape, std::move(boundaries), std::move(holders));
}

}  // namespace heteroperf
