#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "tests/golden/command.hpp"
#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf::testing {

using Words = std::vector<std::string>;

/// Verbs over runs that were never run: their journals are made here.
class ResultVerbs : public ::testing::Test {
 protected:
  /// Runs 0 … count - 1 below `name`, varying by `spread`.
  void make_runs(const std::string& name, int count, double step_s, double spread,
                 StoredRun like = {}) {
    NoiseSource noise(static_cast<std::uint64_t>(step_s * 1000));
    for (int i = 0; i < count; ++i) {
      like.step_s = step_s * std::exp(spread * noise.normal());
      store_run(folder_ / name, like);
      ++like.number;
    }
  }

  CommandResult verb(const Words& words) const { return heteroperf(words, folder_.path()); }

  std::string text_of(const std::string& name) const { return read_text_file(folder_ / name); }

  ScratchFolder folder_;
};

}  // namespace heteroperf::testing
