#include "suite/program/signals.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace heteroperf {
namespace {

/// Allocates, which a signal handler must not.
void say_last_words() {
  const std::string words(1000, 'w');
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, words.data(), words.size());
}

void pause_ms(int duration) { std::this_thread::sleep_for(std::chrono::milliseconds(duration)); }

/// What a process with these signals does that never looks at stop_signal().
[[noreturn]] void get_signals(bool again_later) {
  install_stop_signals(say_last_words);
  for (int i = 0; i < 3; ++i) raise(SIGTERM);
  if (again_later) {
    pause_ms(1100);
    raise(SIGINT);
    pause_ms(60'000);
  }
  _exit(std::string(stop_signal()) == "SIGTERM" ? 0 : 1);
}

TEST(Signals, RepeatsAtOnceAreOneWish) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(get_signals(false), ::testing::ExitedWithCode(0), "^$");
}

TEST(Signals, ASecondWishEndsTheProcessThroughItsLastWords) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(get_signals(true), ::testing::ExitedWithCode(130), "wwww");
}

int answers = -1;  // the end of a pipe to write to

/// Says that it follows its parent, then waits: for the parent's end where it does, else for an
/// alarm, of which it says so.
[[noreturn]] void wait_as_child(const std::string& parent) {
  constexpr unsigned patience_s = 30;
  setenv(parent_variable, parent.c_str(), 1);
  end_with_parent();
  std::signal(SIGALRM, [](int) { _exit(write(answers, "a", 1) == 1 ? 1 : 2); });
  alarm(patience_s);
  if (write(answers, "r", 1) != 1) _exit(2);
  while (true) pause();
}

/// How a child ends whose parent is killed: 'r' and the end of the pipe once both are gone.
TEST(Signals, AChildEndsWithTheParentThatItNames) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const std::string named = std::to_string(getpid());
    answers = ends[1];
    if (fork() == 0) wait_as_child(named);
    while (true) pause();
  }
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(parent, SIGKILL);
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "its alarm ended it";
  waitpid(parent, nullptr, 0);
  close(ends[0]);
}

TEST(Signals, AnotherParentsNameIsNotFollowed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv(parent_variable, "1", 1);
  EXPECT_EXIT(
      {
        end_with_parent();
        int signal_number = -1;
        prctl(PR_GET_PDEATHSIG, &signal_number);
        _exit(signal_number);
      },
      ::testing::ExitedWithCode(0), "");
  unsetenv(parent_variable);
}

}  // namespace
}  // namespace heteroperf
