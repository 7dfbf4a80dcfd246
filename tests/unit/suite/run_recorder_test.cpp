#include "suite/run/run_recorder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// Until the journal has so many warnings, or a minute has passed.
void wait_for_warnings(const RunFiles& files, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    if (read_journal(files.journal().string()).all<WarningEvent>().size() >= count) return;
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
  wait_for_warnings(recorder.files(), 1);
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

TEST(RunRecorder, AMilderReasonDoesNotMendTheClass) {
  const TemporaryFolder home;
  RunRecorder recorder({}, {{"heteroperf", "run", "llm"}, ""}, "llm", home.path() / "run");
  ObservedEvent seen;
  seen.strict = Ops(2);
  seen.executed = Ops(3);
  HostLoadEvent load;
  load.seconds = 10;
  load.cpus = 2;
  load.other_cpus = 1;
  for (const Event& event : {Event(StepEvent()), Event(seen), Event(load)}) {
    recorder.journal().append(event);
  }
  recorder.flush();
  wait_for_warnings(recorder.files(), 2);
  recorder.finish(RunStatus::failed, "stopped", 6);
  const Journal journal = read_journal(recorder.files().journal().string());
  const auto warnings = journal.all<WarningEvent>();
  ASSERT_GE(warnings.size(), 2u);
  EXPECT_TRUE(warnings.front()->text.starts_with("as it stands this run is invalid: "));
  EXPECT_TRUE(warnings.back()->text.starts_with(
      "as it stands this run is invalid, with another reason for review: other_load"))
      << warnings.back()->text;
}

TEST(RunRecorder, NamesTheSuiteThatTheRunIsPartOf) {
  const TemporaryFolder home;
  const SuitePlan suite = whole_suite();
  RunRecorder recorder({}, {{"heteroperf", "run"}, "", suite}, "llm", home.path() / "llm");
  recorder.finish(RunStatus::partial, "stopped", 130);
  const StartEvent start = read_journal_start(recorder.files().journal().string());
  EXPECT_TRUE(start.suite == suite);
  EXPECT_EQ(start.suite_workload, "llm");
}

}  // namespace
}  // namespace heteroperf
