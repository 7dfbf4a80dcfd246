#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "metrics/base/cache_folder.hpp"

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

/// The reason why the ranks ended, in the words of the first that gave one.
struct ExitReport {
  int code = 0;
  std::string text;
};

/// The private folder by which the launching process and its ranks find each other; making it
/// throws as PrivateFolder does. Its path in a process's environment (HETEROPERF_LAUNCHED) marks
/// that process as part of the launch.
class LaunchFolder {
 public:
  static constexpr const char* variable = "HETEROPERF_LAUNCHED";

  const std::filesystem::path& path() const { return folder_.path(); }
  std::optional<ExitReport> report() const;
  /// All living processes of this launch, mpirun included.
  std::vector<pid_t> processes() const;

 private:
  PrivateFolder folder_{"launch-"};
};

/// A rank calls it just before its process ends, with 0 once the world is left. Leaves the exit
/// code and the reason to the process that launched the ranks; the first report counts. Does
/// nothing under a foreign launcher.
void report_exit(int code, const std::string& text);

/// A rank that got SIGUSR1 asks which signal the launching process got. Empty under a foreign
/// launcher.
std::optional<int> passed_on_signal();

/// A rank asks the kernel to end its process together with its mpirun. Does nothing under a foreign
/// launcher.
void die_with_launcher();

/// Returns the path of mpirun. Throws SystemError{environment} unless mpirun (and what it needs) is
/// in PATH.
std::filesystem::path find_mpirun();

}  // namespace heteroperf
