#include "suite/run/signals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
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

}  // namespace
}  // namespace heteroperf
