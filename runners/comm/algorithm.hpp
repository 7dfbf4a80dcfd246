#pragma once

#include <array>
#include <string>

#include "metrics/base/name_table.hpp"

namespace heteroperf {

/// The ways in which an all-reduce can be carried out. The first one belongs to the transport, the
/// next five work over the messages of any group, and the last two know about clusters: they keep
/// the traffic between clusters, which have slow links between them, as small as it can be.
enum class Algorithm {
  native,              ///< the transport's own collective
  recursive_doubling,  ///< pairs at distance 1, 2, 4, … swap and add their whole vectors
  ring,                ///< reduce-scatter and all-gather around a ring
  segmented_ring,      ///< the same in segments: one is summed while the next travels
  rabenseifner,        ///< recursive halving, then recursive doubling
  tree,                ///< a pipelined reduction up a binary tree and a broadcast down
  leader,              ///< one rank speaks for each cluster: reduce, exchange, broadcast
  split_rail,          ///< every bridge of a cluster carries its share of the vector
};

constexpr std::array<const char*, 8> value_names(Algorithm) {
  return {"native", "recursive_doubling", "ring", "segmented_ring", "rabenseifner", "tree",
          "leader", "split_rail"};
}
/// Throws UserError that names the nearest algorithm when `text` is none.
inline Algorithm parse_algorithm(const std::string& text) {
  return parse_value_name<Algorithm>("algorithm", text);
}
inline std::array<Algorithm, 8> all_algorithms() {
  std::array<Algorithm, 8> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Algorithm>(i);
  return all;
}

}  // namespace heteroperf
