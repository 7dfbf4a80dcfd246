// Writes a finished run of many steps on many ranks that was never run, to see what reading it
// costs:
//
//   long_run_study STEPS RANKS FOLDER
//   time heteroperf report FOLDER && scripts/check_report.py FOLDER/report.html
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

constexpr std::int32_t values = 256;

void vary(SampleRun& run, NoiseSource& noise) {
  std::int64_t shift_ns = 0;
  double loss = 6;
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) {
      const auto length = static_cast<double>(step->t_end_ns - step->t_start_ns);
      step->t_start_ns += shift_ns;
      shift_ns += static_cast<std::int64_t>(length * 0.05 * std::abs(noise.normal()));
      step->t_end_ns += shift_ns;
      loss = 1.5 + (loss - 1.5) * 0.9999;
      step->loss = loss + 0.05 * noise.normal();
    } else if (auto* eval = std::get_if<EvalEvent>(&line.event)) {
      eval->t_start_ns += shift_ns;
      eval->t_end_ns += shift_ns;
    }
    line.t_ns += shift_ns;
  }
}

void add_ranks(SampleRun& run, std::int32_t ranks, std::uint64_t steps, NoiseSource& noise) {
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    RankStepsEvent event;
    event.rank = rank;
    event.steps = steps;
    event.steps_per_value = (steps + values - 1) / values;
    for (std::int32_t i = 0; i < values; ++i) {
      event.compute_ns.push_back(
          std::llround(1e7 * std::exp(0.02 * noise.normal()) * (rank == 5 ? 1.2 : 1)));
    }
    run.insert_before_stop(event);
  }
}

void write_trace(const std::filesystem::path& file, const std::string& run_id, std::int32_t ranks) {
  std::ofstream out(file);
  out << fmt::format(
      R"({{"_format":"heteroperf-trace","_version":1,"otherData":{{"kind":"measured","run_id":"{}"}},)"
      R"("traceEvents":[{{"ph":"M","name":"process_name","pid":1,"args":{{"name":"1f1b"}}}})",
      run_id);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < 200; ++i) {
      out << fmt::format(R"(,{{"ph":"X","name":"{} {}","tid":{},"ts":{},"dur":90}})",
                         i % 2 == 0 ? "F" : "BW", i, rank, 100 * i + 10 * rank);
    }
  }
  out << "]}";
}

int write_long_run(int argc, char** argv) {
  if (argc != 4 || std::atoi(argv[1]) < 1 || std::atoi(argv[2]) < 1) {
    fmt::print(stderr, "usage: long_run_study STEPS RANKS FOLDER\n");
    return 2;
  }
  NoiseSource noise(1);
  const int steps = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  SampleRun run = fixed_run({.ranks = ranks, .steps = steps, .step_s = 0.05});
  vary(run, noise);
  add_ranks(run, ranks, static_cast<std::uint64_t>(steps), noise);
  const RunFiles files{argv[3]};
  run.write_finished(files);
  write_trace(files.folder / "trace.json", run.last<StartEvent>().run_id, ranks);
  fmt::print("{} steps: journal of {} MiB\n", steps,
             std::filesystem::file_size(files.journal()) >> 20);
  return 0;
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) { return heteroperf::write_long_run(argc, argv); }
