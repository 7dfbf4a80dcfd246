// Timing tasks over sizes on a machine that is never quite still.
//
// The warm-up at each size tells how long a task takes; from that follows how often it is called
// per timing, and whether the next size still fits into the budget. Then all sizes are timed in
// turns. A disturbance makes times longer and never shorter. So the lower quartile of few rounds is
// taken, the time of a small message is cut to that of a larger one, and the last slope of a curve
// is never flatter than the slope from any smaller size.
#include "runners/comm/selection/size_sweep.hpp"

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

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

template <class Pick>
double middle_of(const std::vector<Timings>& rounds, Pick pick) {
  std::vector<double> times;
  for (const Timings& round : rounds) times.push_back(pick(round).front());
  return quantile(times, times.size() < few_rounds ? 0.25 : 0.5);
}

void cut_to_larger(Points& points) {
  for (std::size_t i = points.size(); i-- > 1;) {
    points[i - 1].time = std::min(points[i - 1].time, points[i].time);
  }
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

Timings::Timings(std::size_t tasks, std::size_t rounds, std::size_t ranks,
                 std::vector<double> seconds)
    : tasks_(tasks), rounds_(rounds), ranks_(ranks), seconds_(std::move(seconds)) {
  HETEROPERF_EXPECT(seconds_.size() == tasks * rounds * ranks);
}

double Timings::at(std::size_t task, std::size_t round, std::size_t rank) const {
  return seconds_[(rank * rounds_ + round) * tasks_ + task];
}

std::vector<double> Timings::slowest(std::size_t task) const {
  std::vector<RankId> all;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    all.emplace_back(static_cast<std::int32_t>(rank));
  }
  return slowest(task, all);
}

std::vector<double> Timings::slowest(std::size_t task, std::span<const RankId> ranks) const {
  std::vector<double> result(rounds_, 0);
  for (std::size_t round = 0; round < rounds_; ++round) {
    for (const RankId rank : ranks) {
      result[round] = std::max(result[round], at(task, round, rank.index()));
    }
  }
  return result;
}

Timings time_interleaved(Communicator& group, std::span<const TimedTask> tasks, int rounds) {
  const std::size_t count = rounds;
  const std::size_t ranks = group.size();
  std::vector<double> local;
  local.reserve(count * tasks.size());
  for (std::size_t round = 0; round < count; ++round) {
    for (const TimedTask& task : tasks) {
      group.barrier();
      local.push_back(seconds_per_call(task));
    }
  }
  std::vector<double> all(local.size() * ranks);
  group.all_gather(ConstBuffer(std::span<const double>(local)), MutableBuffer(std::span(all)));
  return {tasks.size(), count, ranks, std::move(all)};
}

double SizeTimes::time_of(std::size_t task) const {
  return middle_of(rounds, [&](const Timings& t) { return t.slowest(task); });
}

double SizeTimes::time_of(std::size_t task, std::span<const RankId> ranks) const {
  return middle_of(rounds, [&](const Timings& t) { return t.slowest(task, ranks); });
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
  const Timings times = time_interleaved(world_, size.tasks, small ? 2 : 1);
  for (std::size_t t = 0; t < size.tasks.size(); ++t) {
    const double call_s = std::max(1e-8, times.slowest(t).back());
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
      sizes[i].rounds.push_back(time_interleaved(world_, sizes[i].tasks, 1));
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

}  // namespace heteroperf
