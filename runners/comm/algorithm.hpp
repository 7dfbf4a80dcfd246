#pragma once

#include <span>
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

inline constexpr Named<Algorithm> algorithm_names[] = {
    {Algorithm::native, "native"},
    {Algorithm::recursive_doubling, "recursive_doubling"},
    {Algorithm::ring, "ring"},
    {Algorithm::segmented_ring, "segmented_ring"},
    {Algorithm::rabenseifner, "rabenseifner"},
    {Algorithm::tree, "tree"},
    {Algorithm::leader, "leader"},
    {Algorithm::split_rail, "split_rail"}};

inline const char* to_string(Algorithm algorithm) { return name_of(algorithm_names, algorithm); }
/// Throws UserError that names the nearest algorithm when `text` is none.
inline Algorithm parse_algorithm(const std::string& text) {
  return parse_name(algorithm_names, "algorithm", text);
}
inline std::span<const Algorithm> all_algorithms() {
  static constexpr auto algorithms = values_of(algorithm_names);
  return algorithms;
}

}  // namespace heteroperf
