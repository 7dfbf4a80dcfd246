// A first signal only sets a flag that the loop of a run looks at between steps, so that the run
// ends in order. A user who signals again does not want to wait: then *last words* are said, which
// flush the journal, and the process ends. A handler may do almost nothing, so a thread that was
// started beforehand waits at a pipe for one byte and says the last words in its place. A third
// signal ends the process without them, in case they hang.
//
// All state is atomic and lock-free, because handlers of several threads may run at the same time.
#include "suite/program/signals.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <array>
#include <atomic>
#include <string>
#include <thread>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t repeat_ns = 1'000'000'000;
constexpr int exit_code = static_cast<int>(ExitCode::interrupted);

std::atomic<int> received{0};          // the first signal
std::atomic<int> signal_count{0};      // signals that counted
std::atomic<std::int64_t> last_ns{0};  // when the last of them came
std::atomic<int> wake_last_words{-1};  // a pipe's end to write to
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// False for a repeat of a signal that has just counted.
bool counts() {
  const std::int64_t now = now_ns();
  std::int64_t last = last_ns.load();
  // Two signals at one moment are one wish: only one of them can exchange the time.
  return (last == 0 || now - last >= repeat_ns) && last_ns.compare_exchange_strong(last, now);
}

void handle(int signal_number) {
  if (!counts()) return;
  const int before = signal_count.fetch_add(1);
  if (before == 0) {
    received = signal_number;
    return;
  }
  if (before > 1) _exit(exit_code);
  const int saved = errno;
  if (write(wake_last_words, "", 1) != 1) _exit(exit_code);
  errno = saved;
}

void speak_when_woken(int pipe_end, void (*last_words)()) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(pipe_end, &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) return;
  last_words();
  _exit(exit_code);
}

/// The first call starts the thread of the last words.
void start_last_words(void (*last_words)()) {
  if (wake_last_words >= 0) return;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError("cannot make a pipe", std::strerror(errno),
                      "Raise the limit of open files (ulimit -n)", ErrorKind::environment);
  }
  wake_last_words = ends[1];
  std::thread(speak_when_woken, ends[0], last_words).detach();
}

}  // namespace

void install_stop_signals(void (*last_words)()) {
  start_last_words(last_words);
  struct sigaction action = {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal_number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal_number, &action, nullptr);
}

void end_with_parent() {
  const char* named = std::getenv(parent_variable);
  if (named == nullptr) return;
  const std::string parent = std::to_string(getppid());
  if (parent == named) prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It may have gone before.
  if (parent != std::to_string(getppid())) std::raise(SIGTERM);
}

const char* stop_signal() {
  // SIGUSR1 is what mpirun's ranks get; the launching process left a note of the signal that it
  // stands for.
  int signal_number = received.load();
  if (signal_number == SIGUSR1) signal_number = passed_on_signal().value_or(SIGUSR1);
  switch (signal_number) {
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
