#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "results/ranking/ranking.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {

/// Stores runs in a folder and ranks them.
class RankTest : public ::testing::Test {
 protected:
  std::filesystem::path store(const StoredRun& run) { return store_run(folder_.path(), run); }
  void store(int number, const std::string& host, const std::vector<DeviceCount>& devices,
             double step_s) {
    SampleRun run = sample_of({.number = number, .step_s = step_s, .host = host});
    run.last<ScaleEvent>().devices = devices;
    run.write_finished(RunFiles{folder_.path() / std::to_string(number)});
  }
  /// A run whose ranks were on these hosts.
  void store_on(int number, const std::vector<std::string>& hosts) {
    SampleRun run = sample_of({.number = number, .host = std::to_string(number)});
    nlohmann::json system = nlohmann::json::parse(run.last<SystemEvent>().system.text);
    run.last<ScaleEvent>().devices = {{"cpu", static_cast<std::uint32_t>(hosts.size()), 1, false}};
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      system["binding"].push_back({{"rank", rank}, {"host", hosts[rank]}});
    }
    run.last<SystemEvent>().system.text = system.dump();
    run.write_finished(RunFiles{folder_.path() / std::to_string(number)});
  }
  RankingReport ranked(RankKey key = RankKey::ops) const {
    return rank_runs(find_runs({folder_.path()}), key);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace heteroperf
