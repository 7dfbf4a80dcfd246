#include "runners/comm/selection/interleaved_timing.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

double seconds_per_call(const TimedTask& task) {
  for (int call = 0; call < task.untimed; ++call) task.run();
  const Stopwatch stopwatch;
  for (int call = 0; call < task.calls; ++call) task.run();
  return stopwatch.elapsed_s() / task.calls;
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
  std::vector<RankId> everyone;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    everyone.emplace_back(static_cast<std::int32_t>(rank));
  }
  return slowest(task, everyone);
}

std::vector<double> Timings::slowest(std::size_t task, std::span<const RankId> ranks) const {
  std::vector<double> result(rounds_, 0);
  for (std::size_t round = 0; round < rounds_; ++round) {
    for (const RankId rank : ranks) {
      result[round] =
          std::max(result[round], at(task, round, static_cast<std::size_t>(rank.value())));
    }
  }
  return result;
}

Timings time_interleaved(Communicator& group, std::span<const TimedTask> tasks, int rounds) {
  const auto count = static_cast<std::size_t>(rounds);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<double> mine;
  mine.reserve(count * tasks.size());
  for (std::size_t round = 0; round < count; ++round) {
    for (const TimedTask& task : tasks) {
      group.barrier();
      mine.push_back(seconds_per_call(task));
    }
  }
  std::vector<double> all(mine.size() * ranks);
  group.all_gather(ConstBuffer(std::span<const double>(mine)), MutableBuffer(std::span(all)));
  return {tasks.size(), count, ranks, std::move(all)};
}

}  // namespace heteroperf
