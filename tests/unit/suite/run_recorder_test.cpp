#include "suite/run/run_recorder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// Until the journal has a warning, or a minute has passed.
void wait_for_warning(const RunFiles& files) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    if (read_journal(files.journal().string()).first<WarningEvent>() != nullptr) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST(RunRecorder, WarnsOfABrokenRuleWhileTheRunGoesOn) {
  const TemporaryFolder home;
  RunRecorder recorder({}, {{"heteroperf", "run", "llm"}, ""}, "llm", home.path() / "run");
  ObservedEvent seen;
  seen.strict = Ops(2);
  seen.executed = Ops(3);
  recorder.journal().append(seen);
  recorder.flush();
  testing::internal::CaptureStderr();
  wait_for_warning(recorder.files());
  const Journal journal = read_journal(recorder.files().journal().string());
  const std::string said = testing::internal::GetCapturedStderr();
  const auto* warning = journal.first<WarningEvent>();
  ASSERT_NE(warning, nullptr);
  EXPECT_EQ(warning->rule, "executed_operations");
  EXPECT_EQ(
      warning->text,
      "as it stands this run is invalid: executed_operations (3; expected executed = strict + "
      "recompute = 2 on rank 0). What ran is not what was counted.");
  EXPECT_NE(said.find(warning->text), std::string::npos) << said;
  recorder.finish(RunStatus::failed, "stopped", 6);
  const Journal whole = read_journal(recorder.files().journal().string());
  EXPECT_TRUE(std::holds_alternative<StopEvent>(whole.lines.back().event));
}

}  // namespace
}  // namespace heteroperf
