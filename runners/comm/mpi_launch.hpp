#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heteroperf {

struct LaunchConfig {
  int cores = 1;              ///< ranks beyond this number share cores
  double teardown_s = 1.5;    ///< from a rank's report of a failure to the end of all others
  double deadline_s = 30.0;   ///< so long from a report of success; for a stopped mpirun to go on
  double interrupt_s = 10.0;  ///< from the second interrupt to the end of everybody
  std::filesystem::path program;  ///< empty: this program
};

/// Starts `ranks` ranks of this program with `arguments` (without the program's name) under
/// mpirun, waits, and returns their exit code (CONTRACT: 0, 6, 7, 130, …). Stdin is empty.
///
/// SIGINT and SIGTERM reach the ranks as SIGUSR1: mpirun passes that on and lets them finish; a
/// second one, a second or more later, ends them. No process of the run outlives this call, nor
/// this process. Throws SystemError{environment} without mpirun or MPI, {timeout} when mpirun was
/// stopped for `deadline_s`, {run_failed} when ranks died and none said why.
int launch_under_mpirun(int ranks, const std::vector<std::string>& arguments,
                        const LaunchConfig& config);

/// For ranks: leaves the exit code and the reason to the process that launched them; the first
/// one counts. Call it just before the process ends; with 0, once the world is left. Does nothing
/// under a foreign launcher.
void report_exit(int code, const std::string& text);

/// For ranks that got SIGUSR1: the signal that the process that launched them got; nothing under a
/// foreign launcher.
std::optional<int> passed_on_signal();

/// For ranks: the kernel ends this process with its mpirun. Does nothing under a foreign launcher.
void die_with_launcher();

/// Throws SystemError{environment} unless mpirun (and what it needs) is in PATH.
std::filesystem::path find_mpirun();

}  // namespace heteroperf
