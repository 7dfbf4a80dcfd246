#pragma once

#include <string>
#include <vector>

namespace heteroperf {

/// How messages take their time.
enum class NetworkModel {
  latency,     ///< arrive graph.latency later; never block, whatever their order in the program
  links,       ///< occupy links and cards; sends are buffered, receives block where they stand
  rendezvous,  ///< as links, but a send blocks too until its receive is reached
};
const char* to_string(NetworkModel model);
/// Throws UserError naming the nearest one.
NetworkModel parse_network_model(const std::string& name);

/// For `links` and `rendezvous`. Bytes are the edges'; bandwidth in bytes per unit of time.
struct Network {
  double bandwidth = 0;       ///< of a link (ordered pair of ranks); 0: infinite
  int capacity = 1;           ///< messages a link carries at once, each at full bandwidth
  bool full_duplex = true;    ///< false: both directions of a pair share one link
  std::vector<int> card;      ///< [rank]: number of its network card; empty: one each
  double card_bandwidth = 0;  ///< a card carries one message at a time at this rate; 0: no limit
  std::vector<int> node;      ///< [rank]: messages within a node pass no card; empty: all apart
  /// Compute takes this many times longer while a message of its rank is under way.
  double compute_slow_down = 1;
  /// A reduction or step costs (at its rank, which waits): latency · ⌈log2(members)⌉ + this.
  double reduction_time = 0, step_time = 0;
};

}  // namespace heteroperf
