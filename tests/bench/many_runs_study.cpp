// Writes many finished runs that were never run, to see what reading them costs and shows: a
// history of one machine, 3 % slower from its middle on, and runs of other machines and sizes.
//
//   many_runs_study COUNT FOLDER [STEPS, of each run; 30]
//   time heteroperf rank FOLDER && time heteroperf report FOLDER && scripts/check_report.py
//   report.html
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

constexpr double run_noise = 0.01, slow_down = 1.03;
constexpr int others_every = 5, others = 4;

/// Run i of `count`: every fifth is of another machine with more devices.
SampleRun sample_at(int i, int count, int steps, NoiseSource& noise) {
  const bool other = i % others_every == others_every - 1;
  const double level = i > count / 2 ? slow_down : 1;
  const int machine = other ? 1 + i / others_every % others : 0;
  const double step_s = 12 * level / (1 + 0.03 * machine) * std::exp(run_noise * noise.normal());
  SampleRun run = sample_of({.number = i,
                             .step_s = step_s,
                             .seed = static_cast<std::uint64_t>(i),
                             .commit = fmt::format("{:07x}", i / 10),
                             .host = fmt::format("node-{}", machine),
                             .steps = steps});
  if (machine > 0) {
    run.last<ScaleEvent>().devices = {{"cpu", static_cast<std::uint32_t>(2 << machine), 1, false}};
  }
  return run;
}

int write_many_runs(int argc, char** argv) {
  const int steps = argc == 4 ? std::atoi(argv[3]) : 30;
  if (argc < 3 || argc > 4 || std::atoi(argv[1]) < 1 || steps < 1) {
    fmt::print(stderr, "usage: many_runs_study COUNT FOLDER [STEPS]\n");
    return 2;
  }
  NoiseSource noise(1);
  const int count = std::atoi(argv[1]);
  for (int i = 0; i < count; ++i) {
    const auto folder = std::filesystem::path(argv[2]) / fmt::format("run-{:05}", i);
    sample_at(i, count, steps, noise).write_finished(RunFiles{folder});
  }
  fmt::print("{} runs in {}\n", count, argv[2]);
  return 0;
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) { return heteroperf::write_many_runs(argc, argv); }
