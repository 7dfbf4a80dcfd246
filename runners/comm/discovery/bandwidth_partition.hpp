#pragma once

#include <cstddef>
#include <vector>

namespace heteroperf {

/// Items (groups of ranks) and the bandwidths among them, in bytes per second.
struct BandwidthTable {
  /// Of each item: its slowest rank's best link inside the item; of a single rank, the link that it
  /// would have inside a cluster of its own.
  std::vector<double> own;
  std::vector<bool> is_single;               ///< one rank
  std::vector<std::vector<double>> between;  ///< symmetric; unlike for items that never merge
  static constexpr double unlike = -1;

  std::size_t size() const { return own.size(); }
};

/// What a link between two parts is held to: the lower of what the two have, where both are more
/// than one rank; else the higher, since a single rank's best link says nothing about the other.
double reference(const BandwidthTable& table, const std::vector<std::size_t>& a,
                 const std::vector<std::size_t>& b);
/// The best link between two parts.
double best_link(const BandwidthTable& table, const std::vector<std::size_t>& a,
                 const std::vector<std::size_t>& b);

/// The items of each part, ascending, ordered by first item: parts merge while
/// best_link · gap >= reference. A merge that is allowed stays allowed whatever merges first
/// (best_link only grows, reference only falls), so there is one result in any order of items.
std::vector<std::vector<std::size_t>> partition(const BandwidthTable& table, double gap);

}  // namespace heteroperf
