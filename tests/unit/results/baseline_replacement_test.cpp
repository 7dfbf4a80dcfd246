
#include <gtest/gtest.h>

#include <fstream>

#include "results/comparison/baseline_store.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr double threshold = 0.02;

class Replacing : public ::testing::Test {
 protected:
  /// Runs of these step times; a name of one's own per set.
  RunSet runs_of(const std::string& name, const std::vector<double>& step_s, int first,
                 const std::string& build_type = "Release") const {
    for (std::size_t i = 0; i < step_s.size(); ++i) {
      store_run(
          folder_.path() / name,
          {.number = first + static_cast<int>(i), .step_s = step_s[i], .build_type = build_type});
    }
    return find_runs({folder_.path() / name});
  }
  fs::path save(const RunSet& runs) const {
    save_baseline(folder_.path() / "baselines", "main", runs.runs);
    return home();
  }
  fs::path home() const { return folder_.path() / "baselines" / "main"; }

 private:
  TemporaryFolder folder_;
};

/// As of a run so short that it has none.
RunSet without_intervals(RunSet runs) {
  for (RunDigest& run : runs.runs) {
    for (auto& value : run.metrics) {
      if (value) value->ci95.reset();
    }
  }
  return runs;
}

TEST_F(Replacing, NothingStandsInTheWayOfTheFirst) {
  const RunSet runs = runs_of("a", {12}, 0);
  EXPECT_EQ(judge_replacement(home(), runs, threshold).verdict, ReplacementVerdict::allowed);
  const RunSet debug = runs_of("debug", {1}, 10, "Debug");
  EXPECT_EQ(judge_replacement(save(debug), runs, threshold).verdict, ReplacementVerdict::allowed);
}

TEST_F(Replacing, ABetterOrUnchangedRunIsAllowed) {
  save(runs_of("a", {12}, 0));
  // A single run may be slower by a fifth without a cause.
  for (const double step_s : {14.4, 12.0, 12.1, 11.0, 6.0}) {
    const RunSet runs = runs_of(std::to_string(step_s), {step_s}, 20);
    const auto judged = judge_replacement(home(), without_intervals(runs), threshold);
    EXPECT_EQ(judged.verdict, ReplacementVerdict::allowed) << step_s;
    EXPECT_TRUE(judged.reasons.empty());
  }
}

TEST_F(Replacing, AWorseMedianIsRefusedWithoutEvidenceToo) {
  save(runs_of("a", {12}, 0));
  for (const double step_s : {16.1, 24.9}) {
    const RunSet runs = runs_of(std::to_string(step_s), {step_s}, 20);
    const auto judged = judge_replacement(home(), without_intervals(runs), threshold);
    EXPECT_EQ(judged.verdict, ReplacementVerdict::inconclusive) << step_s;
    ASSERT_FALSE(judged.reasons.empty());
    EXPECT_TRUE(judged.reasons[0].starts_with("throughput -")) << judged.reasons[0];
    EXPECT_NE(judged.reasons[0].find("too few"), std::string::npos) << judged.reasons[0];
  }
}

TEST_F(Replacing, SeveralWorseRunsAreRefusedWithoutEvidence) {
  save(runs_of("a", {12, 14, 10, 12}, 0));
  const RunSet unsteady = runs_of("b", {12.6, 15, 11, 12.8}, 20);
  EXPECT_EQ(judge_replacement(home(), unsteady, threshold).verdict,
            ReplacementVerdict::inconclusive);
}

TEST_F(Replacing, AProvenLossIsARegression) {
  save(runs_of("a", {12, 12.05, 11.95, 12.02}, 0));
  const RunSet slow = runs_of("slow", {13.5, 13.55, 13.45, 13.52}, 20);
  const auto judged = judge_replacement(home(), slow, threshold);
  EXPECT_EQ(judged.verdict, ReplacementVerdict::regression);
  ASSERT_FALSE(judged.reasons.empty());
  EXPECT_TRUE(judged.reasons[0].starts_with("throughput -11.1 %")) << judged.reasons[0];
}

TEST_F(Replacing, AnUnusableFileThatWouldGoIsRefused) {
  const RunSet runs = runs_of("a", {12}, 0), next = runs_of("b", {12}, 20);
  save(runs);
  const fs::path file = home() / baseline_file_name(runs.runs[0]);
  std::ofstream(file, std::ios::app) << "<<<<<<< HEAD\n";
  try {
    judge_replacement(home(), next, threshold);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::verification);
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--force"), std::string::npos);
  }
  const RunSet debug = runs_of("debug", {12}, 40, "Debug");
  EXPECT_EQ(judge_replacement(home(), debug, threshold).verdict, ReplacementVerdict::allowed);
}

}  // namespace
}  // namespace heteroperf
