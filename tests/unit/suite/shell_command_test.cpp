#include "suite/program/shell_command.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

class ShellCommandTest : public ::testing::Test {
 protected:
  ShellCommand command(const std::string& line, double deadline_s) const {
    return {line, {}, folder_.path() / "out", err(), deadline_s, OrphanFate::ends};
  }
  std::filesystem::path err() const { return folder_.path() / "err"; }

  TemporaryFolder folder_;
};

TEST_F(ShellCommandTest, ACommandThatEndedHasAllItsWords) {
  const CommandOutcome outcome =
      run_shell_command(command("echo one >&2; echo two >&2; false", 60));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_FALSE(outcome.said_bytes.has_value());
  EXPECT_EQ(last_words(err(), outcome), "its last words: one | two");
}

TEST_F(ShellCommandTest, AnEndThatTheSystemDoesNotTellIsNoSuccess) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const CommandOutcome outcome = run_shell_command(command("exit 3", 60));
  std::signal(SIGCHLD, before);
  EXPECT_NE(outcome.exit_code, 0);
}

TEST_F(ShellCommandTest, WordsAfterItWasEndedAreNotItsOwn) {
  constexpr const char* line =
      "trap 'echo Terminated >&2; exit 1' TERM; echo words >&2; sleep 99 & wait";
  CommandOutcome outcome;
  // A slow machine may need longer to say them.
  for (double deadline_s = 0.3; outcome.said_bytes.value_or(0) == 0 && deadline_s < 60;) {
    outcome = run_shell_command(command(line, deadline_s *= 2));
  }
  EXPECT_EQ(outcome.end, CommandEnd::timed_out);
  EXPECT_NE(read_text_file(err()).find("Terminated"), std::string::npos);
  EXPECT_EQ(last_words(err(), outcome), "its last words: words");
}

TEST_F(ShellCommandTest, ALineThatWasNotWholeIsCutWhereItWas) {
  std::ofstream(err()) << "first\nsecond half";
  CommandOutcome outcome;
  outcome.said_bytes = 12;
  EXPECT_EQ(last_words(err(), outcome), "its last words: first | second");
  outcome.said_bytes = 0;
  EXPECT_EQ(last_words(err(), outcome), "it said nothing on stderr");
}

}  // namespace
}  // namespace heteroperf
