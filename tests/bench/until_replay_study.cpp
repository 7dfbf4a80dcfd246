// Replays `run --until` over long runs: how often the interval that it tells holds the long run's
// throughput, and how long it measures. Long runs are recorded by
//
//   for i in 1 2 3 4; do heteroperf run llm --size nano --ranks 2 --duration 1200 --out long-$i;
//   done until_replay_study long-1 long-2 long-3 long-4
//
// Each replay begins at a random step of the measured phase, with two steps of warm-up.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/statistics.hpp"
#include "results/journal/journal.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/metrics/precision_replay.hpp"

namespace heteroperf {
namespace {

constexpr int replays_per_run = 200;

/// The steps of the measured phase, one unit of work each.
std::vector<StepWork> measured_steps(const std::string& run) {
  const Journal journal = read_journal(open_run_folder(run).journal().string());
  std::vector<StepWork> steps;
  bool measured = false;
  for (const JournalLine& line : journal.lines) {
    if (const auto* phase = std::get_if<PhaseEvent>(&line.event)) {
      measured = phase->phase == Phase::measure;
    }
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (measured && step != nullptr) steps.push_back({step->t_start_ns, step->t_end_ns, 1});
  }
  if (steps.empty()) throw UserError(run + " has no steps of the measured phase");
  return steps;
}

/// Standard deviation over the mean of the rates of consecutive spans: how far apart shorter
/// measurements of this run are.
double spread_between_spans(const std::vector<StepWork>& steps, double span_s) {
  std::vector<double> rates;
  for (std::size_t first = 0, i = 0; i < steps.size(); ++i) {
    const TimeWindow span{steps[first].start_ns, steps[i].end_ns};
    if (span.seconds() < span_s) continue;
    rates.push_back(static_cast<double>(i + 1 - first) / span.seconds());
    first = i + 1;
  }
  return rates.size() < 2 ? std::nan("") : standard_deviation(rates) / mean(rates);
}

void study(const std::vector<std::string>& runs) {
  std::vector<std::vector<StepWork>> measurements;
  for (const std::string& run : runs) {
    measurements.push_back(measured_steps(run));
    const std::vector<StepWork>& steps = measurements.back();
    fmt::print("{}: {} steps in {:.0f} s; spans of", run, steps.size(),
               TimeWindow{steps.front().start_ns, steps.back().end_ns}.seconds());
    for (const double span_s : {1, 5, 10, 20, 60}) {
      fmt::print(" {:.0f} s differ by {:.2f} %", span_s, 100 * spread_between_spans(steps, span_s));
    }
    fmt::print("\n");
  }
  for (const double percent : {0.5, 1.0, 2.0, 5.0}) {
    for (const double duration_s : {60.0, 300.0}) {
      RandomStream random(1);
      ReplayTally all;
      for (const std::vector<StepWork>& steps : measurements) {
        const double whole_s = TimeWindow{steps.front().start_ns, steps.back().end_ns}.seconds();
        if (whole_s < 2 * duration_s) continue;
        const PrecisionGoal goal{.fraction = percent / 100};
        all += replay_many(goal, duration_s, steps, replays_per_run, random);
      }
      if (all.replays == 0) continue;
      fmt::print(
          "--until {}% --duration {:.0f}: of {} replays {:.1f} % hold the long run's value; {} "
          "reached it, of which {} hold; {:.1f} s measured\n",
          percent, duration_s, all.replays, 100.0 * all.held / all.replays, all.reached,
          all.held_reached, all.window_s / all.replays);
    }
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw heteroperf::UserError("usage: until_replay_study RUN…");
    heteroperf::study({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "until_replay_study: {}\n", error.what());
    return 2;
  }
}
