// Formulas of the time of an all-reduce. Each algorithm is a sum of *parts*: steps in which every
// rank sends one message, sums of two blocks, and stages of a pipeline of segments. `Parts` knows
// what a part costs in the group: inside a cluster the slowest cluster's curve holds, and messages
// that leave or reach a cluster in the same step share its network cards.
#include "runners/comm/selection/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t smallest_segment = 16384;
constexpr std::uint64_t longest_pipeline_segment = std::uint64_t{512} << 10;
constexpr Bytes bridge_message{49152};

double time_of(const LinkCurve& curve, double bytes) {
  if (curve.empty() || bytes <= 0) return 0;
  return curve.time(Bytes(static_cast<std::uint64_t>(std::ceil(bytes)))).value();
}

/// The directions of the messages of a step: to the partner, or also back.
enum class Ways { there, both };

/// The times of the parts that algorithms are made of, in seconds. Sizes are in bytes, as real
/// numbers: the mean of unequal blocks.
struct Parts {
  Parts(const CostModel& costs, const CallShape& shape)
      : model(costs),
        call(shape),
        clusters(costs.clusters.clusters.size()),
        ranks(costs.clusters.ranks()),
        bytes(static_cast<double>(shape.bytes.value())),
        segment(std::max(1.0, static_cast<double>(shape.segment.value()))),
        cluster_of(ranks) {
    for (std::size_t k = 0; k < clusters; ++k) {
      for (const RankId rank : costs.clusters.clusters[k].ranks) {
        HETEROPERF_EXPECT(rank.value() >= 0 && rank.value() < ranks);
        cluster_of[rank.index()] = k;
      }
    }
  }

  const CostModel& model;
  const CallShape& call;
  const std::size_t clusters;
  const int ranks;
  const double bytes, segment;
  std::vector<std::size_t> cluster_of;  ///< by rank

  double reduction(double n) const { return time_of(model.reduction, n); }

  /// One step, in which messages of one size are under way together: rank r sends to partner(r),
  /// unless that is r itself.
  template <class Partner>
  double step(double n, Partner partner) const {
    double slowest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int peer = partner(rank);
      if (peer == rank || cluster(peer) != cluster(rank)) continue;
      slowest = std::max(slowest, time_of(model.inside[cluster(rank)], n));
    }
    if (clusters == 1) return slowest;
    return std::max(slowest, time_of(model.between, n * busiest_card(partner, Ways::there)));
  }
  /// One message inside the slowest cluster.
  double inside(double n) const {
    double slowest = 0;
    for (const LinkCurve& curve : model.inside) slowest = std::max(slowest, time_of(curve, n));
    return slowest;
  }
  /// One segment from bridge to bridge.
  double crossing(double n) const {
    if (!scatters()) return time_of(model.between, peers() * wire(n));
    return 2 * time_of(model.between, n * peers() / static_cast<double>(clusters));
  }
  /// The time that one more message adds while several are in flight.
  double stream_inside(double n) const {
    if (!model.inside_stream.empty()) return time_of(model.inside_stream, n);
    return inside(n);
  }
  double stream_between(double n) const {
    return time_of(model.between_stream.empty() ? model.between : model.between_stream, n);
  }
  template <class Partner>
  double stream_between(double n, Partner partner, Ways ways) const {
    return clusters == 1 ? 0 : stream_between(n * busiest_card(partner, ways));
  }

  /// A segment from every bridge to all others, and their part of it back.
  double across(double n) const {
    return stream_between(scatters() ? 2 * n * peers() / static_cast<double>(clusters)
                                     : peers() * wire(n));
  }
  /// The sum of the contributions that came over the bridges.
  double sum_across(double n) const {
    return peers() * reduction(scatters() ? n / static_cast<double>(clusters) : n);
  }
  /// Returns true when bridges share the sums of a segment among them (segment_bridge.hpp).
  bool scatters() const { return clusters > 2 && call.wire == WireFormat::fp32; }
  double codec(double n) const {
    if (call.wire == WireFormat::fp32) return 0;
    return time_of(call.wire == WireFormat::bf16 ? model.bf16_codec : model.int8_codec, n);
  }
  double wire(double n) const {
    const auto values = static_cast<std::size_t>(std::ceil(n / sizeof(float)));
    return static_cast<double>(wire_bytes(call.wire, values));
  }

  /// The other clusters of a cluster.
  double peers() const { return static_cast<double>(clusters - 1); }
  std::size_t cluster(int rank) const { return cluster_of[rank]; }

  /// The messages over the busiest card when every rank sends to its partner.
  template <class Partner>
  double busiest_card(Partner partner, Ways ways) const {
    std::vector<double> leaving(clusters, 0), arriving(clusters, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::size_t from = cluster(rank), to = cluster(partner(rank));
      if (from == to) continue;
      leaving[from] += 1;
      arriving[to] += 1;
    }
    double most = 0;
    for (std::size_t k = 0; k < clusters; ++k) {
      const double messages =
          ways == Ways::both ? leaving[k] + arriving[k] : std::max(leaving[k], arriving[k]);
      most = std::max(most, over_cards(k, messages));
    }
    return most;
  }
  double over_cards(std::size_t k, double messages) const {
    const auto cards = static_cast<double>(model.clusters.clusters[k].bridges.size());
    return messages > 0 ? std::max(1.0, messages / cards) : 0;
  }
};

int power_below(int ranks) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
}

/// The p − 2^k ranks too many hand their vector to a neighbour and get the result from it.
double fold(const Parts& parts) {
  const int extra = parts.ranks - power_below(parts.ranks);
  if (extra == 0) return 0;
  const double n = parts.bytes;
  const double there =
      parts.step(n, [extra](int rank) { return rank < 2 * extra ? rank ^ 1 : rank; });
  return 2 * there + parts.reduction(n);
}

/// The rank of active rank `index`, one of the 2^k that go on (collectives/all_reduce.cpp).
int unfolded(int index, int extra) { return index < extra ? 2 * index + 1 : index + extra; }

/// Pairs each of the 2^k ranks with the one at `distance`.
auto partner_at(int distance, int ranks) {
  const int extra = ranks - power_below(ranks);
  return [distance, extra](int rank) {
    if (rank < 2 * extra && rank % 2 == 0) return rank;
    const int index = rank < 2 * extra ? rank / 2 : rank - extra;
    return unfolded(index ^ distance, extra);
  };
}

double recursive_doubling(const Parts& parts) {
  const double n = parts.bytes;
  double time = fold(parts);
  for (int distance = 1; distance < power_below(parts.ranks); distance *= 2) {
    time += parts.step(n, partner_at(distance, parts.ranks)) + parts.reduction(n);
  }
  return time;
}

/// The first and largest step is with the nearest rank; the way back has the same steps.
double rabenseifner(const Parts& parts) {
  double time = fold(parts);
  double part = parts.bytes;
  for (int distance = 1; distance < power_below(parts.ranks); distance *= 2) {
    part /= 2;
    const double step = parts.step(part, partner_at(distance, parts.ranks));
    time += 2 * step + parts.reduction(part);
  }
  return time;
}

double ring(const Parts& parts) {
  const int p = parts.ranks;
  const double block = parts.bytes / p;
  const double step = parts.step(block, [p](int rank) { return (rank + 1) % p; });
  return (p - 1) * (2 * step + parts.reduction(block));
}

/// A block goes on as soon as its first segment has come, so a step takes at least a segment's
/// latency; and it takes what the segments of a block take one after the other.
double segmented_ring(const Parts& parts) {
  const int p = parts.ranks;
  const auto right = [p](int rank) { return (rank + 1) % p; };
  const double block = parts.bytes / p;
  const double piece = std::min(block, parts.segment);
  if (piece <= 0) return 0;
  const double pieces = block / piece;
  const double step = parts.step(piece, right),
               stream = std::max(parts.stream_inside(piece),
                                 parts.stream_between(piece, right, Ways::there));
  const double sum = parts.reduction(piece);
  return (p - 1) *
         (std::max(step + sum, pieces * std::max(stream, sum)) + std::max(step, pieces * stream));
}

/// Rank r of a binary tree has rank (r - 1)/2 above it. Sums go up and results down at once, so a
/// segment costs a rank one message each way per neighbour, and a sum per child.
double tree(const Parts& parts) {
  const int p = parts.ranks;
  const int depth = std::bit_width(static_cast<unsigned>(p)) - 1;
  const double piece = std::min(parts.bytes, parts.segment);
  if (depth == 0 || piece <= 0) return 0;
  const auto above = [](int rank) { return rank == 0 ? 0 : (rank - 1) / 2; };
  const double children = std::min(2, p - 1);
  const double neighbours = p > 4 ? 3 : children;
  const double sums = children * parts.reduction(piece);
  const double interval = std::max(neighbours * parts.stream_inside(piece) + sums,
                                   parts.stream_between(piece, above, Ways::both));
  return depth * (2 * parts.step(piece, above) + sums) + (parts.bytes / piece - 1) * interval;
}

/// The levels below the top of a tree inside a cluster.
int inside_depth(std::size_t members) {
  int depth = 0;
  for (std::size_t reach = 1; reach < members; reach = reach * inside_arity + 1) ++depth;
  return depth;
}

/// Segments go up the clusters' trees, over the bridges and down again, all stages at once. A rank
/// is the top of its cluster's tree for `share` of the segments, and a child for the others. The
/// work of the rank itself adds up; its card works meanwhile.
double hierarchical(const Parts& parts, double share) {
  HETEROPERF_EXPECT(parts.clusters > 1);
  const double piece = std::min(parts.bytes, parts.segment);
  if (piece <= 0) return 0;
  std::size_t most = 1;
  for (const RankCluster& cluster : parts.model.clusters.clusters) {
    most = std::max(most, cluster.ranks.size());
  }
  const double children = static_cast<double>(std::min(inside_arity, most - 1));
  const double message = most > 1 ? parts.stream_inside(piece) : 0;
  const double at_top =
      children * (message + parts.reduction(piece)) + parts.codec(piece) + parts.sum_across(piece);
  const double interval =
      std::max(share * at_top + (1 - share) * message, share * parts.across(piece));
  const double climb = most > 1 ? parts.inside(piece) : 0;
  const double first = 2 * inside_depth(most) * climb + children * parts.reduction(piece) +
                       parts.crossing(piece) + parts.codec(piece) + parts.sum_across(piece);
  return first + (parts.bytes / piece - 1) * interval;
}

double split_rail(const Parts& parts) {
  double largest = 0;
  for (const RankCluster& cluster : parts.model.clusters.clusters) {
    for (const Bridge& bridge : cluster.bridges) largest = std::max(largest, bridge.share);
  }
  return hierarchical(parts, largest);
}

struct Formula {
  Algorithm algorithm;
  double (*seconds)(const Parts&);
  bool segments;  ///< true when the segment size matters
};

constexpr Formula formulas[] = {
    {Algorithm::native, [](const Parts& p) { return time_of(p.model.native, p.bytes); }, false},
    {Algorithm::recursive_doubling, recursive_doubling, false},
    {Algorithm::ring, ring, false},
    {Algorithm::segmented_ring, segmented_ring, true},
    {Algorithm::rabenseifner, rabenseifner, false},
    {Algorithm::tree, tree, true},
    {Algorithm::leader, [](const Parts& p) { return hierarchical(p, 1.0); }, true},
    {Algorithm::split_rail, split_rail, true},
};

const Formula& formula_of(Algorithm algorithm) {
  const auto* formula = std::ranges::find(formulas, algorithm, &Formula::algorithm);
  HETEROPERF_EXPECT(formula != std::end(formulas));
  return *formula;
}

/// The factor at a size, between those of the two sizes around it.
double correction(const CostModel& model, Algorithm algorithm, Bytes size) {
  const Correction* below = nullptr;
  for (const Correction& point : model.corrections) {
    if (point.algorithm != algorithm) continue;
    if (point.size >= size) {
      if (below == nullptr || point.size == size) return point.factor;
      const double low = std::log(static_cast<double>(below->size.value()));
      const double high = std::log(static_cast<double>(point.size.value()));
      const double at = (std::log(static_cast<double>(size.value())) - low) / (high - low);
      return below->factor + at * (point.factor - below->factor);
    }
    below = &point;
  }
  return below == nullptr ? 1.0 : below->factor;
}

}  // namespace

Seconds uncorrected_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call) {
  return Seconds(formula_of(algorithm).seconds(Parts(model, call)));
}

Seconds predict_all_reduce(const CostModel& model, Algorithm algorithm, const CallShape& call) {
  return uncorrected_all_reduce(model, algorithm, call) * correction(model, algorithm, call.bytes);
}

Bytes longest_bridge_segment(WireFormat wire) {
  return wire == WireFormat::fp32 ? bridge_message : 2 * bridge_message;
}

Bytes best_segment(const CostModel& model, Algorithm algorithm, const CallShape& call) {
  if (!formula_of(algorithm).segments) return default_segment;
  const bool crosses = model.clusters.clusters.size() > 1;
  const std::uint64_t limit =
      crosses ? longest_bridge_segment(call.wire).value() : longest_pipeline_segment;
  Bytes best{0};
  Seconds shortest{0};
  for (std::uint64_t size = smallest_segment; size < 2 * limit; size *= 2) {
    CallShape shape = call;
    shape.segment = Bytes(std::min(size, limit));
    const Seconds time = uncorrected_all_reduce(model, algorithm, shape);
    if (best.value() != 0 && time >= shortest) continue;
    best = shape.segment;
    shortest = time;
  }
  return best;
}

}  // namespace heteroperf
