// Advice for a model that fits nowhere.
//
// The question is always the same: does PipelineFill find any pipeline when time does not matter?
// It is asked for more and more memory per device, first doubling and then by bisection, and for
// more devices. Every other choice is the thriftiest there is: full recomputation if need be,
// ZeRO-1, all sizes of micro-batches. So the factors named are what the search itself would need.
// Where no memory helps, the tables have a hole.
#include "runners/plan/search/fit_advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/quantity.hpp"
#include "runners/plan/search/pipeline_fill.hpp"

namespace heteroperf {
namespace {

constexpr double most_memory_factor = 1 << 20;

/// True when some micro-batch lets the pools cover the model within their memory.
bool fits(const PlanningProblem& problem) {
  const DraftScorer scorer(problem);
  const StageFiller filler(scorer);
  PipelineFill fill(filler);
  const auto never = [] { return false; };
  const auto nothing = [](PipelineFill::Structure&&) {};
  for (std::int64_t samples = 1; samples <= problem.batch; ++samples) {
    if (problem.batch % samples != 0) continue;
    FillRules rules;
    rules.samples = samples;
    rules.micro_batches =
        static_cast<int>(std::min<std::int64_t>(problem.batch / samples, 1 << 20));
    if (fill.run(any_period_s, rules, never, nothing)) return true;
    // Larger micro-batches need more memory, but can use more replicas to share states.
    if (samples > problem.devices()) break;
  }
  return false;
}

PlanningProblem with_memory(PlanningProblem problem, double factor) {
  for (DevicePool& pool : problem.pools) pool.memory_bytes *= factor;
  return problem;
}

PlanningProblem with_devices(PlanningProblem problem, int factor) {
  for (DevicePool& pool : problem.pools) pool.devices *= factor;
  return problem;
}

/// The least factor on all memory with which the model fits, to a part in a thousand; 0 where no
/// factor helps.
double least_memory_factor(const PlanningProblem& problem) {
  double low = 1, high = 2;
  while (!fits(with_memory(problem, high))) {
    low = high;
    if ((high *= 2) > most_memory_factor) return 0;
  }
  while (high / low > 1.001) {
    const double middle = (low + high) / 2;
    (fits(with_memory(problem, middle)) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::vector<Problem> fit_problems(const PlanningProblem& problem) {
  const double factor = least_memory_factor(problem);
  if (factor == 0) {
    return {{"no plan covers the model and its batch",
             fmt::format("for some layer no pool has times with micro-batches of 1 to {}, whatever "
                         "the memory",
                         problem.most_samples),
             "Add the missing times, or another batch."}};
  }
  std::string pools;
  for (const DevicePool& pool : problem.pools) {
    if (pool.devices == 0 || pool.memory_bytes <= 0) continue;
    pools += fmt::format("{}{} needs {} ({} available)", pools.empty() ? "" : ", ", pool.name,
                         rounded_byte_size(factor * pool.memory_bytes),
                         rounded_byte_size(pool.memory_bytes));
  }
  std::string advice = fmt::format("Use devices with {:.3g} times the memory", factor);
  for (const int more : {2, 3, 4, 6, 8, 16, 32, 64}) {
    if (static_cast<long long>(problem.devices()) * more > (1 << 16)) break;
    if (!fits(with_devices(problem, more))) continue;
    advice += fmt::format(", {} times as many devices", more);
    break;
  }
  return {{"the model fits nowhere on this machine",
           fmt::format("with full recomputation, ZeRO-1 and the smallest micro-batch {}", pools),
           advice + ", or a smaller model."}};
}

}  // namespace heteroperf
