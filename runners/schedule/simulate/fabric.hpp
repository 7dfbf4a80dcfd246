#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <vector>

#include "runners/schedule/ir/pipeline_graph.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The links and network cards of simulate_network(), and the messages that wait for them. Each is
/// a *carrier*: a link has as many slots as its capacity, a card has one. A message holds a slot of
/// its link and, between nodes, both cards while it is transferred. Among those that wait, the one
/// issued first starts first, unless something else it needs is taken.
class Fabric {
 public:
  /// The way of an edge's messages in one direction.
  struct Route {
    std::int32_t source = -1, target = -1;             ///< ranks
    double seconds = 0;                                ///< time of one transfer
    double latency = 0;                                ///< from its end to the arrival
    std::array<std::int32_t, 3> carriers{-1, -1, -1};  ///< link and cards; −1: none
  };
  /// A message that may start.
  struct Ticket {
    double issued = 0;
    std::int32_t rank = -1, index = -1;  ///< the place of its send, by which ties are ordered
    std::int32_t message = -1, route = -1;

    bool before(const Ticket& other) const {
      return std::tie(issued, rank, index) < std::tie(other.issued, other.rank, other.index);
    }
  };

  /// Throws UserError where the network has other ranks than the graph.
  Fabric(const PipelineGraph& graph, const Network& network);

  const Route& route(std::int32_t route) const { return routes_[route]; }
  /// True where no message ever takes time, so that none waits.
  bool instant() const { return instant_; }

  /// Ends a transfer.
  void release(std::int32_t route);
  /// Calls start(ticket) for every ticket, of those issued now and those that wait for what was
  /// released since the last call, that can start now; the others wait. Sorts `issued`.
  template <class Start>
  void admit(std::vector<Ticket>& issued, Start start);

 private:
  struct Carrier {
    std::int32_t free = 1;
    std::vector<Ticket> waiting;  // a heap, the first one on top
  };
  static bool later(const Ticket& a, const Ticket& b) { return b.before(a); }

  void add_routes(const PipelineGraph& graph, const Network& network);
  std::int32_t add_carrier(int capacity);
  /// Takes all carriers of a ticket, or queues it at the first one that is not free.
  bool take(const Ticket& ticket);
  /// The released carrier whose first waiter comes before all others' and before `ticket`.
  Carrier* first_waiting(const Ticket* ticket);

  std::vector<Route> routes_;           // [2 · edge, + 1 for gradients]
  std::vector<Carrier> carriers_;       // links, and cards that are used
  std::vector<std::int32_t> released_;  // carriers, since the last admit()
  bool instant_ = true;
};

template <class Start>
void Fabric::admit(std::vector<Ticket>& issued, Start start) {
  std::sort(issued.begin(), issued.end(),
            [](const Ticket& a, const Ticket& b) { return a.before(b); });
  std::size_t next = 0;
  for (;;) {
    const Ticket* fresh = next < issued.size() ? &issued[next] : nullptr;
    Carrier* carrier = first_waiting(fresh);
    if (carrier == nullptr && fresh == nullptr) break;
    Ticket ticket;
    if (carrier != nullptr) {
      std::pop_heap(carrier->waiting.begin(), carrier->waiting.end(), later);
      ticket = carrier->waiting.back();
      carrier->waiting.pop_back();
    } else {
      ticket = *fresh;
      ++next;
    }
    if (take(ticket)) start(ticket);
  }
  released_.clear();
}

}  // namespace heteroperf
