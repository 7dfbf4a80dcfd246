// Starts a shell command so that it can be ended with everything it has started. The command leads
// a process group of its own; a signal to the group reaches all of its descendants that did not
// leave it. An end is asked for with SIGTERM, which lets a run write its record, and forced with
// SIGKILL after five seconds.
//
// One case needs more: when this process itself is killed, nobody is left to send signals. A guard
// process in the group then reads from a pipe that only this process holds open. Its read ends when
// this process does, however it dies, and the guard ends the group. posix_spawn starts the shell,
// because a fork of a process with many threads may inherit locked locks.
#include "suite/program/shell_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "metrics/base/error.hpp"
#include "results/text/text_escapes.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto poll_period = std::chrono::milliseconds(10);
constexpr auto grace = std::chrono::seconds(5);
constexpr int signal_offset = 128;

void require(int error, const std::string& what) {
  if (error == 0) return;
  throw SystemError("cannot " + what, std::strerror(error), "", ErrorKind::environment);
}

/// Runs "$1" as `sh -c` does. Beside it waits, in the group, what ends the group: descriptor 9 is a
/// pipe that only this process can write to, so reading ends with this process. Both shells outlive
/// a SIGTERM until the program that they wait for has ended, which may want to do so in order.
constexpr const char* guarded =
    "{ trap '' TERM INT; read -r gone; kill -TERM 0; sleep 5; kill -KILL 0; } <&9 >/dev/null 2>&1 "
    "9<&- & exec 9<&-; trap 'exit 143' TERM; "
    "/bin/sh -c 'trap \"exit 143\" TERM; eval \"$1\"' sh \"$1\"; exit $?";
constexpr int guard_descriptor = 9;

/// The library's objects, freed on every way out.
struct SpawnSettings {
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};

  SpawnSettings() {
    require(posix_spawn_file_actions_init(&files), "start a command");
    require(posix_spawnattr_init(&attributes), "start a command");
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  void redirect(int descriptor, const char* path, int flags) {
    constexpr mode_t mode = 0644;
    require(posix_spawn_file_actions_addopen(&files, descriptor, path, flags, mode),
            std::string("open ") + path);
  }
  void pass(int from, int to) {
    require(posix_spawn_file_actions_adddup2(&files, from, to), "start a command");
  }
  /// A group of its own; signals as a fresh program expects them.
  void isolate() {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
};

// Settings of the command replace variables of the same name.
std::vector<std::string> environment_with(const std::vector<std::string>& settings) {
  std::vector<std::string> all = settings;
  const auto is_set = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    return std::any_of(settings.begin(), settings.end(),
                       [&](const std::string& variable) { return variable.starts_with(name); });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_set(*entry)) all.emplace_back(*entry);
  }
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Starts the command, with a guard that reads from `life_line` where there is one.
pid_t start(const ShellCommand& command, std::optional<int> life_line) {
  SpawnSettings settings;
  settings.redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  settings.redirect(STDOUT_FILENO, command.out.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  settings.redirect(STDERR_FILENO, command.err.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  settings.isolate();
  std::vector<std::string> words{"/bin/sh", "-c", command.line};
  if (life_line) {
    settings.pass(*life_line, guard_descriptor);
    words = {"/bin/sh", "-c", guarded, "sh", command.line};
  }
  std::vector<std::string> environment = environment_with(command.environment);
  pid_t pid = -1;
  require(posix_spawn(&pid, "/bin/sh", &settings.files, &settings.attributes,
                      pointers_to(words).data(), pointers_to(environment).data()),
          "start `" + command.line + "`");
  return pid;
}

/// The exit status once it has ended; that of a killed one where the system does not know it.
std::optional<int> ended(pid_t pid) {
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  return got == pid ? status : SIGKILL;
}

std::optional<int> wait_until(pid_t pid, Clock::time_point moment) {
  while (true) {
    if (const auto status = ended(pid)) return status;
    if (Clock::now() >= moment) return std::nullopt;
    std::this_thread::sleep_for(poll_period);
  }
}

int stop_group(pid_t pid) {
  // A negative number names the group.
  kill(-pid, SIGTERM);
  if (const auto status = wait_until(pid, Clock::now() + grace)) return *status;
  kill(-pid, SIGKILL);
  const auto status = wait_until(pid, Clock::now() + grace);
  return status.value_or(SIGKILL);
}

int exit_code_of_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : signal_offset + WTERMSIG(status);
}

}  // namespace

/// A pipe whose other end closes with this process.
class StartedCommand::LifeLine {
 public:
  LifeLine() {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) require(errno, "make a pipe");
    // Away from the descriptor that the guard reads.
    read_end_ = fcntl(ends[0], F_DUPFD_CLOEXEC, guard_descriptor + 1);
    const int error = errno;
    close(ends[0]);
    write_end_ = ends[1];
    if (read_end_ < 0) require(error, "make a pipe");
  }
  ~LifeLine() {
    close(read_end_);
    close(write_end_);
  }
  LifeLine(const LifeLine&) = delete;
  LifeLine& operator=(const LifeLine&) = delete;

  int read_end() const { return read_end_; }

 private:
  int read_end_ = -1, write_end_ = -1;
};

StartedCommand::StartedCommand(ShellCommand command) : command_(std::move(command)) {
  if (command_.orphan == OrphanFate::ends) life_ = std::make_unique<LifeLine>();
  pid_ = start(command_, life_ ? std::optional(life_->read_end()) : std::nullopt);
}

StartedCommand::~StartedCommand() { end(CommandEnd::interrupted); }

/// Kills everything that still runs in the group, so that nothing disturbs the next run.
const CommandOutcome& StartedCommand::conclude(int status) {
  kill(-pid_, SIGKILL);
  outcome_.exit_code = exit_code_of_status(status);
  outcome_.seconds = stopwatch_.elapsed_s();
  is_over_ = true;
  return outcome_;
}

const CommandOutcome* StartedCommand::poll() {
  if (is_over_) return &outcome_;
  if (const auto status = ended(pid_)) return &conclude(*status);
  if (stop_signal() != nullptr) return &end(CommandEnd::interrupted);
  if (stopwatch_.elapsed_s() >= command_.deadline_s) return &end(CommandEnd::timed_out);
  return nullptr;
}

const CommandOutcome& StartedCommand::end(CommandEnd why) {
  if (is_over_) return outcome_;
  outcome_.end = why;
  std::error_code gone;  // a file that somebody took away has no words anyway
  outcome_.said_bytes = std::filesystem::file_size(command_.err, gone);
  return conclude(stop_group(pid_));
}

const CommandOutcome& StartedCommand::wait() {
  while (true) {
    if (const CommandOutcome* outcome = poll()) return *outcome;
    std::this_thread::sleep_for(poll_period);
  }
}

CommandOutcome run_shell_command(const ShellCommand& command) {
  return StartedCommand(command).wait();
}

std::string last_words(const std::filesystem::path& err, const CommandOutcome& outcome) {
  constexpr std::size_t lines_shown = 5, longest_line = 200;
  std::ifstream stream(err, std::ios::binary);
  std::deque<std::string> lines;
  // A shell that was killed says so itself; only words from before count.
  std::uintmax_t left = outcome.said_bytes.value_or(std::numeric_limits<std::uintmax_t>::max());
  for (std::string line; left > 0 && std::getline(stream, line);) {
    if (line.size() > left) line.resize(left);
    left -= std::min<std::uintmax_t>(left, line.size() + 1);
    if (line.empty()) continue;
    lines.push_back(utf8_text(line.substr(0, longest_line)));
    if (lines.size() > lines_shown) lines.pop_front();
  }
  return lines.empty() ? "it said nothing on stderr"
                       : fmt::format("its last words: {}", fmt::join(lines, " | "));
}

}  // namespace heteroperf
