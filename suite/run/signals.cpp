#include "suite/run/signals.hpp"

#include <unistd.h>
#include <csignal>
#include <cstddef>

#include <atomic>

#include "suite/exit_code.hpp"

namespace heteroperf {
namespace {

std::atomic<int> received{0};
std::atomic<void (*)()> on_second_signal{nullptr};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<void (*)()>::is_always_lock_free);

void handle(int signal_number) {
  int expected = 0;
  if (received.compare_exchange_strong(expected, signal_number)) return;
  if (auto* last_words = on_second_signal.load()) last_words();
  _exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void install_stop_signals(void (*last_words)()) {
  on_second_signal = last_words;
  struct sigaction action = {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal_number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal_number, &action, nullptr);
}

const char* stop_signal() {
  switch (received.load()) {
    case 0:
      return nullptr;
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGUSR1";
  }
}

}  // namespace heteroperf
