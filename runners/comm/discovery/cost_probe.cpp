// Measuring what predictions of an all-reduce need.
//
// The probe times small *tasks* that all ranks of a group do together: messages around the ring of
// each cluster and around the ring of the clusters' first bridges, one at a time and several in
// flight; the sum of two vectors; encoding and decoding of the wire formats. The times by size
// become the curves of the model. Then it runs every all-reduce algorithm and keeps the ratio of
// the measured time to the formula's, the *correction*. Each group of tasks has a time budget;
// sizes grow as long as it lasts.
//
// The machine is never quite still. The warm-up at each size tells how long a task takes; from that
// follows how often it is called per timing, and whether the next size still fits into the budget.
// Then all sizes are timed in turns. A disturbance makes times longer and never shorter. So the
// lower quartile of few rounds is taken, the time of a small message is cut to that of a larger
// one, and the last slope of a curve is never flatter than the slope from any smaller size.
#include "runners/comm/discovery/cost_probe.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/discovery/link_probe.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t step_factor = 4;
constexpr int least_rounds = 2, most_rounds = 11;
constexpr std::size_t few_rounds = 7;
/// A task is called so often that one timing takes about this long.
constexpr double least_timing_s = 500e-6;
constexpr int most_calls = 100;
/// A shorter call gets an untimed one before it.
constexpr double short_call_s = 5e-3;

using Points = std::vector<LinkCurve::Point>;

double seconds_per_call(const TimedTask& task) {
  for (int call = 0; call < task.untimed; ++call) task.run();
  const Stopwatch stopwatch;
  for (int call = 0; call < task.calls; ++call) task.run();
  return stopwatch.elapsed_s() / task.calls;
}

void straighten_end(Points& points) {
  if (points.size() < 3) return;
  const LinkCurve::Point& last = points.back();
  LinkCurve::Point& before = points[points.size() - 2];
  for (std::size_t i = 0; i + 2 < points.size(); ++i) {
    const double part = (before.size - points[i].size) / (last.size - points[i].size);
    before.time = std::min(before.time, points[i].time + (last.time - points[i].time) * part);
  }
  cut_to_larger(points);
}

}  // namespace

double RoundTimes::slowest(std::size_t task, std::span<const RankId> ranks) const {
  double most = 0;
  for (const RankId rank : ranks) most = std::max(most, seconds[rank.index() * tasks + task]);
  if (!ranks.empty()) return most;
  for (std::size_t i = task; i < seconds.size(); i += tasks) most = std::max(most, seconds[i]);
  return most;
}

RoundTimes time_round(Communicator& group, std::span<const TimedTask> tasks) {
  std::vector<double> local;
  for (const TimedTask& task : tasks) {
    group.barrier();
    local.push_back(seconds_per_call(task));
  }
  std::vector<double> all(local.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(ConstBuffer(std::span<const double>(local)), MutableBuffer(std::span(all)));
  return {tasks.size(), std::move(all)};
}

double SizeTimes::time_of(std::size_t task, std::span<const RankId> ranks) const {
  std::vector<double> times;
  for (const RoundTimes& round : rounds) times.push_back(round.slowest(task, ranks));
  return quantile(times, times.size() < few_rounds ? 0.25 : 0.5);
}

std::vector<SizeTimes> SizeSweep::run(Bytes first, Bytes span, Bytes largest,
                                      const TasksOf& tasks_of) {
  std::vector<SizeTimes> sizes;
  for (std::uint64_t n = first.value(); n <= largest.value(); n *= step_factor) {
    const double expected_s = sizes.empty() ? 0 : sizes.back().round_s * step_factor;
    if (n > span.value() && expected_s * (least_rounds + 1) > left_s()) break;
    sizes.push_back({Bytes(n), tasks_of(Bytes(n)), 0, {}});
    warm_up(sizes.back());
  }
  time_in_turns(sizes);
  return sizes;
}

/// Returns the time that is left by rank 0's clock, in seconds.
double SizeSweep::left_s() {
  double elapsed_s = stopwatch_.elapsed_s();
  world_.broadcast(std::span<double>(&elapsed_s, 1), RankId(0));
  return budget_.value() - elapsed_s;
}

void SizeSweep::warm_up(SizeTimes& size) {
  // The first call finds no memory warm; at large sizes that matters little and costs much.
  const bool small = size.size <= Bytes(std::uint64_t{1} << 20);
  RoundTimes times = time_round(world_, size.tasks);
  if (small) times = time_round(world_, size.tasks);
  for (std::size_t t = 0; t < size.tasks.size(); ++t) {
    const double call_s = std::max(1e-8, times.slowest(t));
    TimedTask& task = size.tasks[t];
    task.calls = static_cast<int>(std::clamp<double>(least_timing_s / call_s, 1, most_calls));
    task.untimed = call_s < short_call_s ? 1 : 0;
    size.round_s += (task.calls + task.untimed) * call_s;
  }
}

/// Gives half of the time that is left to the largest size, a quarter to the next one, and so on.
void SizeSweep::time_in_turns(std::vector<SizeTimes>& sizes) {
  std::vector<int> rounds(sizes.size());
  double share_s = left_s() / 2;
  for (std::size_t i = sizes.size(); i-- > 0; share_s /= 2) {
    rounds[i] =
        static_cast<int>(std::clamp<double>(share_s / sizes[i].round_s, least_rounds, most_rounds));
  }
  for (int round = 0; round < most_rounds; ++round) {
    // A busy machine takes longer than the warm-up told.
    if (round > 0 && left_s() < 0) return;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (round >= rounds[i]) continue;
      sizes[i].rounds.push_back(time_round(world_, sizes[i].tasks));
    }
  }
}

Points rising_times(const std::vector<SizeTimes>& measured,
                    const std::function<double(const SizeTimes&)>& time_of) {
  Points points;
  for (const SizeTimes& m : measured) {
    points.push_back({m.size, Seconds(std::max(time_of(m), 1e-9))});
  }
  cut_to_larger(points);
  return points;
}

LinkCurve measured_curve(const std::vector<SizeTimes>& measured,
                         const std::function<double(const SizeTimes&)>& time_of) {
  Points points = rising_times(measured, time_of);
  straighten_end(points);
  return points.empty() ? LinkCurve() : LinkCurve(std::move(points));
}

namespace {

constexpr int in_flight = 4;
/// So many bridge segments are ten times what shapers let pass at first.
constexpr int many_in_flight = 32;
/// Sizes go up to this at least; less would not tell latency and bandwidth apart.
constexpr Bytes least_span{65536};
/// The same between clusters, where shapers and switches let the first 100 KiB or so pass at any
/// rate.
constexpr Bytes least_span_between{std::uint64_t{1} << 20};

/// The time budgets of the probe's parts.
constexpr Seconds inside_budget{0.15}, between_budget{0.15}, bridge_budget{0.1},
    algorithms_budget{1.0};

/// Messages of one size to and from this rank's neighbours.
class Neighbours {
 public:
  Neighbours(Communicator& group, std::optional<RankId> next, std::optional<RankId> previous)
      : group_(group), next_(next), previous_(previous) {}

  void exchange(ConstBuffer out, MutableBuffer in, int messages) {
    if (!next_ || !previous_) return;
    sends_.assign(messages, {out, *next_, 0});
    receives_.assign(messages, {in, *previous_, 0});
    group_.exchange(sends_, receives_);
  }

 private:
  Communicator& group_;
  std::optional<RankId> next_, previous_;
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

Neighbours ring_of(Communicator& group) {
  const int p = group.size(), rank = group.rank().value();
  if (p == 1) return {group, std::nullopt, std::nullopt};
  return {group, RankId((rank + 1) % p), RankId((rank + p - 1) % p)};
}

/// Puts the first bridges of all clusters in a ring; other ranks have no neighbours.
Neighbours bridge_ring(Communicator& world, const RankClusters& clusters) {
  const auto& list = clusters.clusters;
  const auto count = list.size();
  for (std::size_t k = 0; k < count && count > 1; ++k) {
    if (list[k].bridges.front().rank != world.rank()) continue;
    return {world, list[(k + 1) % count].bridges.front().rank,
            list[(k + count - 1) % count].bridges.front().rank};
  }
  return {world, std::nullopt, std::nullopt};
}

/// The curve of one task's times per message.
LinkCurve curve_of(const std::vector<SizeTimes>& measured, std::size_t task, double messages = 1) {
  return measured_curve(measured, [&](const SizeTimes& m) { return m.time_of(task) / messages; });
}

/// Lets no size have a higher rate than the largest one: many small messages carry no more than a
/// large one does, and the bytes that a shaper lets pass at first are not a rate to count on.
LinkCurve sustained(const LinkCurve& curve) {
  std::vector<LinkCurve::Point> points = curve.points();
  for (LinkCurve::Point& point : points) {
    const double bytes = static_cast<double>(point.size.value());
    point.time = std::max(point.time, Seconds(bytes / curve.bandwidth().value()));
  }
  return LinkCurve(std::move(points));
}

/// One rank's part in the probe.
class CostProbe {
 public:
  CostProbe(Communicator& world, Communicator& inside, const RankClusters& clusters, Bytes largest)
      : world_(world),
        largest_(std::max(largest, least_span_between)),
        in_ring_(ring_of(inside)),
        bridges_(bridge_ring(world, clusters)) {
    model_.clusters = clusters;
  }

  CostModel measure() {
    reserve(Bytes(65536));
    measure_inside();
    if (several_clusters()) measure_between();
    measure_algorithms();
    return std::move(model_);
  }

 private:
  bool several_clusters() const { return model_.clusters.clusters.size() > 1; }

  void reserve(Bytes size) {
    if (first_.size() * sizeof(float) >= size.value()) return;
    first_.assign(size.value() / sizeof(float), 0.0F);
    second_.assign(first_.size(), 0.0F);
  }
  std::span<float> values(Bytes size) { return {first_.data(), size.value() / sizeof(float)}; }
  MutableBuffer first(Bytes size) { return values(size); }
  MutableBuffer second(Bytes size) {
    return std::span<float>(second_.data(), size.value() / sizeof(float));
  }

  TimedTask exchange(Neighbours& neighbours, Bytes size, int messages) {
    return {[this, &neighbours, size, messages] {
      neighbours.exchange(first(size), second(size), messages);
    }};
  }
  TimedTask sum(Bytes size) {
    return {[this, size] {
      const std::array<const void*, 2> sources{first_.data(), second_.data()};
      const std::array<void*, 1> destination{first_.data()};
      reduce_in_order(sources, destination, size.value() / sizeof(float), DataType::f32,
                      Reduction::sum);
    }};
  }
  TimedTask codec(WireFormat format, Bytes size) {
    return {[this, format, size] {
      auto* wire = reinterpret_cast<std::byte*>(second_.data());
      encode(format, values(size), wire);
      decode_add(format, wire, values(size));
    }};
  }

  void measure_inside() {
    enum Task : std::size_t { alone, stream, add };
    const auto measured =
        SizeSweep(world_, inside_budget).run(Bytes(256), least_span, largest_, [&](Bytes size) {
          reserve(size);
          return std::vector<TimedTask>{exchange(in_ring_, size, 1),
                                        exchange(in_ring_, size, in_flight), sum(size)};
        });
    for (const RankCluster& cluster : model_.clusters.clusters) {
      model_.inside.push_back(cluster.ranks.size() == 1
                                  ? LinkCurve()
                                  : measured_curve(measured, [&](const SizeTimes& m) {
                                      return m.time_of(alone, cluster.ranks);
                                    }));
    }
    model_.inside_stream = curve_of(measured, stream, in_flight);
    model_.reduction = curve_of(measured, add);
  }
  void measure_between() {
    enum Task : std::size_t { alone, stream, bf16, int8 };
    const auto measured = SizeSweep(world_, between_budget)
                              .run(Bytes(256), least_span_between, largest_, [&](Bytes size) {
                                reserve(size);
                                return std::vector<TimedTask>{exchange(bridges_, size, 1),
                                                              exchange(bridges_, size, in_flight),
                                                              codec(WireFormat::bf16, size),
                                                              codec(WireFormat::int8, size)};
                              });
    model_.between = curve_of(measured, alone);
    model_.between_stream = sustained(curve_of(measured, stream, in_flight));
    model_.bf16_codec = curve_of(measured, bf16);
    model_.int8_codec = curve_of(measured, int8);
    measure_bridge_rate();
  }
  void measure_bridge_rate() {
    const Bytes segment = longest_bridge_segment(WireFormat::fp32);
    reserve(segment);
    const auto measured =
        SizeSweep(world_, bridge_budget).run(segment, segment, segment, [&](Bytes size) {
          return std::vector<TimedTask>{exchange(bridges_, size, many_in_flight)};
        });
    const double bytes = static_cast<double>(segment.value()) * many_in_flight;
    model_.bridge_rate = BytesPerSecond(bytes / std::max(measured.front().time_of(0), 1e-9));
  }
  void measure_algorithms() {
    for (const Algorithm algorithm : all_algorithms()) {
      const bool across = uses_bridges(algorithm);
      if (across && !several_clusters()) continue;
      algorithms_.push_back(algorithm);
      hybrids_.push_back(across ? forced(algorithm) : nullptr);
    }
    take_algorithms(SizeSweep(world_, algorithms_budget)
                        .run(Bytes(1024), least_span, largest_, [&](Bytes size) {
                          reserve(size);
                          std::vector<TimedTask> tasks;
                          for (std::size_t a = 0; a < algorithms_.size(); ++a) {
                            tasks.push_back(all_reduce_task(a, size));
                          }
                          return tasks;
                        }));
  }
  void take_algorithms(const std::vector<SizeTimes>& measured) {
    for (std::size_t a = 0; a < algorithms_.size(); ++a) {
      if (algorithms_[a] == Algorithm::native) {
        model_.native = curve_of(measured, a);
        continue;
      }
      for (const auto& [size, time] :
           rising_times(measured, [a](const SizeTimes& m) { return m.time_of(a); })) {
        CallShape call{size, WireFormat::fp32, Bytes(0)};
        call.segment = best_segment(model_, algorithms_[a], call);
        const Seconds formula = uncorrected_all_reduce(model_, algorithms_[a], call);
        if (formula <= Seconds(0)) continue;
        model_.corrections.push_back({algorithms_[a], size, time / formula});
      }
    }
  }
  /// Makes a communicator that always takes `algorithm`.
  std::unique_ptr<HybridCommunicator> forced(Algorithm algorithm) {
    HybridConfig config;
    config.clusters = model_.clusters;
    config.model = model_;
    config.rules = {{algorithm, Bytes(0), Bytes(~std::uint64_t{0})}};
    return make_hybrid_communicator(world_.split(0, world_.rank().value()), std::move(config));
  }
  TimedTask all_reduce_task(std::size_t index, Bytes size) {
    const Algorithm algorithm = algorithms_[index];
    if (HybridCommunicator* hybrid = hybrids_[index].get()) {
      return {[this, hybrid, size] { hybrid->all_reduce(first(size), Reduction::sum); }};
    }
    if (algorithm == Algorithm::native) {
      return {[this, size] { world_.all_reduce(first(size), Reduction::sum); }};
    }
    const Bytes segment = best_segment(model_, algorithm, {size, WireFormat::fp32, Bytes(0)});
    return {[this, algorithm, size, segment] {
      const MutableBuffer vector = first(size);
      all_reduce({world_, vector, vector, Reduction::sum, scratch_, segment.value()}, algorithm);
    }};
  }

  Communicator& world_;
  Bytes largest_;
  Neighbours in_ring_, bridges_;
  CostModel model_;
  std::vector<float> first_, second_;
  Scratch scratch_;
  std::vector<Algorithm> algorithms_;
  std::vector<std::unique_ptr<HybridCommunicator>> hybrids_;  ///< one per algorithm; may be null
};

}  // namespace

CostModel measure_cost_model(Communicator& world, Communicator& inside,
                             const RankClusters& clusters, Bytes largest) {
  HETEROPERF_EXPECT(clusters.ranks() == world.size());
  return CostProbe(world, inside, clusters, largest).measure();
}

}  // namespace heteroperf
