#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>

#include "metrics/base/error.hpp"
#include "results/sweep/sweep_index.hpp"
#include "suite/sweep/sweep_folder.hpp"
#include "suite/sweep/sweep_session.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {

namespace fs = std::filesystem;

inline SweepIndex planned(std::vector<std::string> sweeps, std::int64_t repeats = 1,
                          const std::string& seed = "1") {
  return plan_sweep({{{"workload", "llm", "workload"}, {"seed", seed, "--seed"}},
                     true,
                     std::move(sweeps),
                     repeats});
}

inline std::vector<std::string> argv_of(const SweepIndex& index, const SweepRun& run,
                                        const fs::path& home) {
  std::vector<std::string> argv = sweep_run_words(index, run, home.string());
  argv.insert(argv.begin(), "/opt/bin/heteroperf");
  return argv;
}

/// A folder with the runs of a sweep whose index is lost.
class RecoverSweepTest : public ::testing::Test {
 protected:
  fs::path sweep() const { return folder_.path() / "sweep"; }
  fs::path home(const SweepIndex& index, std::size_t number) const {
    return sweep() / index.runs.at(number).folder;
  }
  SampleRun sample(const SweepIndex& index, std::size_t number, const fs::path& run_home) const {
    const SweepRun& run = index.runs.at(number);
    SampleRun one = sample_of({.number = static_cast<int>(number), .seed = run.seed});
    one.last<StartEvent>().argv = argv_of(index, run, run_home);
    one.last<StartEvent>().sweep = place_of(index, run);
    for (const auto& [key, value] : index.points.at(run.point)) {
      if (key != "scale.ranks") continue;
      one.last<ScaleEvent>().devices = {{"cpu", static_cast<std::uint32_t>(std::stoul(value)), 1}};
    }
    return one;
  }
  void store(const SweepIndex& index, std::size_t number) const {
    sample(index, number, home(index, number)).write_finished(RunFiles{home(index, number)});
  }
  /// A run as a program wrote it that named no place.
  void store_older(const SweepIndex& index, std::size_t number) const {
    SampleRun run = sample(index, number, home(index, number));
    run.last<StartEvent>().sweep.reset();
    run.write_finished(RunFiles{home(index, number)});
  }
  void store_all(const SweepIndex& index) const {
    for (std::size_t i = 0; i < index.runs.size(); ++i) store(index, i);
  }
  SweepIndex rebuilt() {
    recovered_ = recover_sweep(sweep());
    return read_sweep(sweep());
  }
  /// What recover_sweep() says is wrong; empty where nothing is.
  std::string complaint() const {
    try {
      recover_sweep(sweep());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::string warnings() const { return fmt::format("{}", fmt::join(recovered_.warnings, "\n")); }
  static std::string unknown(const SweepIndex& index) {
    return fmt::format("{}", fmt::join(index.unknown, "\n"));
  }

  TemporaryFolder folder_;
  RecoveredSweep recovered_;
};

}  // namespace heteroperf
