#pragma once

#include <span>
#include <string>

namespace heteroperf {

/// How an all-reduce is carried out.
enum class Algorithm {
  native,              ///< the transport's own
  recursive_doubling,  ///< lg p steps of the whole vector
  ring,                ///< reduce-scatter and all-gather around the ring
  segmented_ring,      ///< the same in segments, summing one while the next travels
  rabenseifner,        ///< recursive halving, then doubling
  tree,                ///< pipelined reduction up a binary tree and broadcast down
  leader,              ///< per cluster one rank speaks for all: reduce, exchange, broadcast
  split_rail,          ///< per cluster every bridge carries its share of the vector
};

/// "native", "recursive_doubling", …
const char* to_string(Algorithm algorithm);
/// Throws UserError naming the nearest one.
Algorithm parse_algorithm(const std::string& text);
std::span<const Algorithm> all_algorithms();

}  // namespace heteroperf
