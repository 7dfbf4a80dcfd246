// The times of a plan's messages and sums on the links of its cluster.
//
// Replicas of both ends of an edge split the same micro-batch in their order, so a sender and a
// receiver share the overlap of their intervals of samples. The slowest pair decides, over the
// slowest pair of their ranks. Sums are rings (Patarasuk and Yuan 2009), as slow as the slowest
// link among neighbours. Links are given by labels of clusters or by pairs of ranks; where only
// labels count, two ranks of each label show every link there is, which saves the square of
// thousands of ranks.
#include "runners/plan/times/plan_links.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"

namespace heteroperf {
double PlanLinks::ring_s(const std::vector<RankId>& ranks, double bytes) const {
  const std::size_t n = ranks.size();
  if (n < 2) return 0;
  double latency = 0, seconds_per_byte = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const RankId a = ranks[i], b = ranks[(i + 1) % n];
    // A rank that is its own neighbour needs no link.
    if (a == b) continue;
    const LinkCurve& link = cluster_.link(a, b);
    latency = std::max(latency, link.latency().value());
    seconds_per_byte = std::max(seconds_per_byte, 1 / link.bandwidth().value());
  }
  const auto count = static_cast<double>(n);
  return 2 * (count - 1) / count * bytes * seconds_per_byte + 2 * (count - 1) * latency;
}

std::vector<RankId> PlanLinks::ring_of(const std::vector<StageId>& stages) const {
  std::vector<RankId> ranks;
  std::set<RankId> seen;
  for (const StageId stage : stages) {
    for (const StageReplica& replica : plan_.stages[stage].replicas) {
      const RankId rank = replica.ranks.front();
      if (seen.insert(rank).second) ranks.push_back(rank);
    }
  }
  return ranks;
}

/// Calls visit(from, to, samples that both have).
template <class Visit>
void PlanLinks::for_each_pair(const StageEdge& edge, int direction, Visit visit) const {
  const auto of_direction = [&](StageId stage) {
    std::vector<const StageReplica*> replicas;
    for (const StageReplica& one : plan_.stages[stage].replicas) {
      if (one.direction == direction) replicas.push_back(&one);
    }
    return replicas;
  };
  const std::vector<const StageReplica*> senders = of_direction(edge.from),
                                         receivers = of_direction(edge.to);
  std::size_t s = 0, r = 0;
  std::int64_t s_first = 0, r_first = 0;
  while (s < senders.size() && r < receivers.size()) {
    const std::int64_t s_end = s_first + senders[s]->micro_batch,
                       r_end = r_first + receivers[r]->micro_batch;
    const std::int64_t both = std::min(s_end, r_end) - std::max(s_first, r_first);
    if (both > 0) visit(*senders[s], *receivers[r], both);
    if (s_end <= r_end) ++s, s_first = s_end;
    if (r_end <= s_end) ++r, r_first = r_end;
  }
}

double PlanLinks::message_s(const StageEdge& edge, const std::vector<NodeId>& nodes) const {
  if (nodes.empty()) return 0;
  double slowest = 0;
  for (const int direction : {0, 1}) {
    for_each_pair(edge, direction,
                  [&](const StageReplica& from, const StageReplica& to, std::int64_t samples) {
                    const Bytes bytes(message_bytes(graph_, nodes, samples, precision_,
                                                    plan_.wire(edge.from, edge.to)));
                    for (const RankId a : from.ranks) {
                      for (const RankId b : to.ranks) {
                        // Nothing travels within a rank.
                        if (a == b) continue;
                        slowest = std::max(slowest, cluster_.link(a, b).time(bytes).value());
                      }
                    }
                  });
  }
  return slowest;
}

/// Ranks between which every link of the plan's ranks shows: two of each cluster's, unless pairs
/// have links of their own.
std::vector<RankId> PlanLinks::distinct_ranks() const {
  const bool pairs = std::any_of(cluster_.links.begin(), cluster_.links.end(),
                                 [](const Link& link) { return link.ranks.has_value(); });
  std::map<std::string, int> seen;
  std::vector<RankId> ranks;
  for (int rank = 0, end = plan_.ranks(); rank < end; ++rank) {
    if (pairs || ++seen[cluster_.ranks[rank].cluster] <= 2) ranks.emplace_back(rank);
  }
  return ranks;
}

double PlanLinks::agreement_s() const {
  const std::vector<RankId> ranks = distinct_ranks();
  double slowest = 0;
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = a + 1; b < ranks.size(); ++b) {
      const Seconds time = cluster_.link(ranks[a], ranks[b]).time(Bytes(16));
      slowest = std::max(slowest, time.value());
    }
  }
  return plan_.ranks() > 1 ? slowest * std::ceil(std::log2(plan_.ranks())) : 0;
}

}  // namespace heteroperf
