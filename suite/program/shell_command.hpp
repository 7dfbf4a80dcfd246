#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/clock.hpp"

namespace heteroperf {

/// The fate of a command when this process is killed.
enum class OrphanFate { runs_on, ends };

/// A command line for /bin/sh, and what it is given.
struct ShellCommand {
  std::string line;
  std::vector<std::string> environment;  ///< "NAME=value", in place of this process's own
  std::filesystem::path out, err;        ///< where its output goes
  double deadline_s = 0;                 ///< it is ended after that long
  OrphanFate orphan = OrphanFate::runs_on;
};

enum class CommandEnd { exited, timed_out, interrupted };

struct CommandOutcome {
  CommandEnd end = CommandEnd::exited;
  int exit_code = 0;  ///< 128 + signal when it was killed
  double seconds = 0;
  /// The length of its stderr when it was told to end; afterwards shells add words of their own.
  std::optional<std::uintmax_t> said_bytes;
};

/// A command that was started in a process group of its own. At the deadline, or when this process
/// is asked to stop (signals.hpp), the group gets SIGTERM and five seconds later SIGKILL; what it
/// leaves running in the group is killed in any case. With OrphanFate::ends the group ends so too
/// once this process is gone, SIGKILL included.
class StartedCommand {
 public:
  /// Throws SystemError when it cannot be started.
  explicit StartedCommand(ShellCommand command);
  ~StartedCommand();  ///< ends what still runs
  StartedCommand(const StartedCommand&) = delete;
  StartedCommand& operator=(const StartedCommand&) = delete;

  /// Returns how the command ended, or null while it runs. Ends it at its deadline and on a stop
  /// signal.
  const CommandOutcome* poll();
  const CommandOutcome& wait();
  /// Ends it now unless it is over; the outcome says `why`.
  const CommandOutcome& end(CommandEnd why);

 private:
  class LifeLine;
  const CommandOutcome& conclude(int status);

  ShellCommand command_;
  Stopwatch stopwatch_;
  std::unique_ptr<LifeLine> life_;  ///< with OrphanFate::ends
  pid_t pid_ = -1;
  CommandOutcome outcome_;
  bool is_over_ = false;
};

/// Starts the command and waits for its end.
CommandOutcome run_shell_command(const ShellCommand& command);

/// "its last words: …": what a command that failed said last, from the file with its stderr,
/// without what would steer a terminal; of one that was ended, before it was.
std::string last_words(const std::filesystem::path& err, const CommandOutcome& outcome);

}  // namespace heteroperf
