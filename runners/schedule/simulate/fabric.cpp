// A message takes all of its carriers or none. One that finds a carrier taken queues there alone,
// as it cannot start before that one is free; when it is, the message tries again and may queue at
// the next. first_waiting() merges the queues of the released carriers with the new tickets, so
// that everything that may start does so in the order of issue.

#include "runners/schedule/simulate/fabric.hpp"

#include <fmt/format.h>

#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/grouped_lists.hpp"

namespace heteroperf {
namespace {

void check_per_rank(const char* key, const std::vector<int>& values, int ranks,
                    ProblemList& problems) {
  if (values.empty() || std::ssize(values) == ranks) return;
  problems.add(fmt::format("{} names {} ranks", key, values.size()),
               fmt::format("the schedule has {}", ranks), "Give a number per rank, or none.");
}

/// Complains of a network that is not the graph's. Its reader has looked at the numbers.
void check_network(const Network& network, int ranks) {
  ProblemList problems;
  check_per_rank("card", network.card, ranks, problems);
  check_per_rank("node", network.node, ranks, problems);
  problems.throw_if_any();
}

/// Renumbers values from 0 on without gaps; every rank has one of its own where none are given.
std::vector<std::int32_t> dense(const std::vector<int>& values, int ranks) {
  std::vector<std::int32_t> result(ranks);
  std::vector<int> distinct = values;
  sort_unique(distinct);
  for (int rank = 0; rank < ranks; ++rank) {
    result[rank] = values.empty()
                       ? rank
                       : static_cast<std::int32_t>(
                             std::lower_bound(distinct.begin(), distinct.end(), values[rank]) -
                             distinct.begin());
  }
  return result;
}

/// A bandwidth of 0 stands for an infinite one.
double transfer_time(double bytes, double bandwidth) {
  return bandwidth > 0 ? bytes / bandwidth : 0;
}

}  // namespace

Fabric::Fabric(const PipelineGraph& graph, const Network& network) {
  check_network(network, graph.ranks);
  add_routes(graph, network);
  instant_ = std::all_of(routes_.begin(), routes_.end(),
                         [](const Route& route) { return route.seconds == 0; });
}

std::int32_t Fabric::add_carrier(int capacity) {
  carriers_.emplace_back().free = capacity;
  return static_cast<std::int32_t>(carriers_.size()) - 1;
}

/// A route within a rank, or between ranks of one node, passes no card. Two ranks that share a card
/// take it once.
void Fabric::add_routes(const PipelineGraph& graph, const Network& network) {
  const std::vector<std::int32_t> card = dense(network.card, graph.ranks);
  const std::vector<std::int32_t> node = dense(network.node, graph.ranks);
  std::vector<std::int32_t> carrier_of_card(graph.ranks, -1);
  std::vector<std::tuple<int, int, std::int32_t>> links;  // pair of ranks, carrier; sorted
  const auto link = [&](int source, int target) {
    if (!network.full_duplex && source > target) std::swap(source, target);
    const auto at = std::lower_bound(links.begin(), links.end(), std::tuple(source, target, -1));
    if (at != links.end() && std::get<0>(*at) == source && std::get<1>(*at) == target) {
      return std::get<2>(*at);
    }
    return std::get<2>(*links.insert(at, {source, target, add_carrier(network.capacity)}));
  };
  const auto card_carrier = [&](int rank) {
    std::int32_t& carrier = carrier_of_card[card[rank]];
    if (carrier < 0) carrier = add_carrier(1);
    return carrier;
  };

  for (const Edge& edge : graph.edges) {
    for (const bool gradient : {false, true}) {
      Route& route = routes_.emplace_back();
      route.source = graph.segments[gradient ? edge.to : edge.from].rank;
      route.target = graph.segments[gradient ? edge.from : edge.to].rank;
      if (route.source == route.target) continue;
      const double bytes = edge.bytes / graph.parts;
      route.latency = graph.latency + (gradient ? edge.gradient_time : edge.activation_time);
      route.seconds = transfer_time(bytes, network.bandwidth);
      route.carriers[0] = link(route.source, route.target);
      if (network.card_bandwidth == 0 || node[route.source] == node[route.target]) continue;
      route.seconds = std::max(route.seconds, transfer_time(bytes, network.card_bandwidth));
      route.carriers[1] = card_carrier(route.source);
      if (card[route.source] != card[route.target]) route.carriers[2] = card_carrier(route.target);
    }
  }
}

void Fabric::release(std::int32_t route) {
  for (const std::int32_t carrier : routes_[route].carriers) {
    if (carrier < 0) continue;
    ++carriers_[carrier].free;
    released_.push_back(carrier);
  }
}

/// A transfer that takes no time needs free carriers, but does not hold them.
bool Fabric::take(const Ticket& ticket) {
  const Route& route = routes_[ticket.route];
  for (const std::int32_t carrier : route.carriers) {
    if (carrier < 0 || carriers_[carrier].free > 0) continue;
    carriers_[carrier].waiting.push_back(ticket);
    std::push_heap(carriers_[carrier].waiting.begin(), carriers_[carrier].waiting.end(), later);
    return false;
  }
  if (route.seconds == 0) return true;
  for (const std::int32_t carrier : route.carriers) {
    if (carrier >= 0) --carriers_[carrier].free;
  }
  return true;
}

/// Only released carriers are looked at: nothing has changed at the others since the last time.
Fabric::Carrier* Fabric::first_waiting(const Ticket* ticket) {
  Carrier* first = nullptr;
  for (const std::int32_t id : released_) {
    Carrier& carrier = carriers_[id];
    if (carrier.free == 0 || carrier.waiting.empty()) continue;
    if (ticket != nullptr && !carrier.waiting.front().before(*ticket)) continue;
    ticket = &carrier.waiting.front();
    first = &carrier;
  }
  return first;
}

}  // namespace heteroperf
