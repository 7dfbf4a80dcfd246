#pragma once

#include <array>
#include <string>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// The ways in which messages take their time.
enum class NetworkModel {
  latency,     ///< arrive graph.latency later; never block, whatever their order in the program
  links,       ///< occupy links and cards; sends are buffered, receives block where they stand
  rendezvous,  ///< as links, but a send blocks too until its receive is reached
};
constexpr std::array<const char*, 3> value_names(NetworkModel) {
  return {"latency", "links", "rendezvous"};
}

/// The network of the models `links` and `rendezvous`. Bytes are the edges'; bandwidth is in bytes
/// per unit of time. A *link* joins an ordered pair of ranks, a *card* joins a node's ranks to all
/// other nodes.
struct Network {
  double bandwidth = 0;       ///< rate of a link; 0: infinite
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

struct TimeSpan {
  double start = 0, end = 0;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};

/// The times of everything that happened in a simulation.
struct Timeline {
  std::vector<std::vector<TimeSpan>> spans;  ///< [rank][instruction]
  /// The instruction that an instruction waited for last: its end (plus latency) is the start. The
  /// rank is −1 where it started at once. Following causes from the last end gives the critical
  /// path.
  struct Cause {
    std::int32_t rank = -1, index = -1;
  };
  std::vector<std::vector<Cause>> causes;  ///< [rank][instruction]
  /// For an instruction that spans a wait, the time within its span from which on the message or
  /// collective that it waits for was under way; else its start. Empty under `latency`.
  std::vector<std::vector<double>> under_way;  ///< [rank][instruction]
  struct Transfer {
    std::int32_t rank = -1, index = -1;  ///< the place of its send
    double issued = 0;                   ///< ready to start, but for links and cards
    double start = 0, end = 0;           ///< it arrives the graph's latency after that
  };
  std::vector<Transfer> transfers;  ///< by rank and index; empty under `latency`
};

struct SimulationOptions {
  NetworkModel model = NetworkModel::latency;
  Network network;
};

/// Runs the programs on a virtual clock; the cost is linear in instructions. A fused pair starts
/// when the inputs of both are there. Models other than `latency` need a lowered schedule.
/// Throws UserError with the waiting cycle, rank by rank, where the programs cannot end.
Timeline simulate(const Schedule& schedule, const SimulationOptions& options = {});

/// simulate() for the models `links` and `rendezvous`. network_simulator.cpp states their rules.
Timeline simulate_network(const Schedule& schedule, const SimulationOptions& options);

}  // namespace heteroperf
