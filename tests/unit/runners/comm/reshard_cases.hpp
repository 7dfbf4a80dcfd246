#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runners/comm/reshard/rank_program.hpp"
#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {

/// Values of every rank's tensor, by rank.
using RankTensors = std::vector<std::vector<float>>;

std::vector<RankId> rank_range(int first, int count);
/// Type f32, slices of one element and more.
ReshardConfig fine_config();
/// Cuts an extent into parts that differ by one element at most.
std::vector<std::int64_t> even_boundaries(std::int64_t extent, std::int64_t parts);
/// Tile after tile, each on the next `replicas` ranks from the first on.
Layout grid_layout(const Layout::Shape& shape, std::vector<std::vector<std::int64_t>> boundaries,
                   int first_rank, int replicas = 1);
/// One dimension cut evenly over ranks.
Layout even_cut(Layout::Shape shape, std::size_t dim, int first_rank, int ranks);
/// Everything on each of the ranks.
Layout replicated(const Layout::Shape& shape, int first_rank, int ranks);

/// Boundaries and holders, for messages.
std::string text_of(const Layout& layout);

/// Uneven and empty parts, several replicas and several tiles per rank.
class RandomLayouts {
 public:
  explicit RandomLayouts(std::uint32_t seed) : engine_(seed) {}

  int number(int least, int most);
  Layout::Shape shape();
  Layout layout(const Layout::Shape& shape, int ranks);

 private:
  std::mt19937 engine_;
};

/// Row-major indices of the elements of a rank, in the order of its memory.
std::vector<std::int64_t> elements_of(const Layout& layout, RankId rank);
/// Each rank's part of a tensor given by linear index.
RankTensors spread(const std::vector<float>& tensor, const Layout& layout, int ranks);
std::vector<float> linear_indices(const Layout& layout);

/// All ranks of a plan one after another, without a communicator.
RankTensors play(const ReshardPlan& plan, const RankTensors& sources);

}  // namespace heteroperf
