#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "results/comparison/run_set.hpp"
#include "suite/program/shell_command.hpp"

namespace heteroperf {

/// Says what is going on, a line each; may be empty.
using GateProgress = std::function<void(const std::string& line)>;

/// One run of a gate that was started and may still be going on.
struct BegunRun {
  std::string side;    ///< "--base-cmd" or "--head-cmd"
  std::string folder;  ///< below the gate's own
  std::filesystem::path home;
  ShellCommand command;
  std::unique_ptr<StartedCommand> process;

  std::string name() const;  ///< side and command line
  /// The run folder that the command is told to use, absolute.
  std::filesystem::path run_folder() const;
};

/// Starts the runs of one gate and reads what they leave.
class GateRuns {
 public:
  /// `out` is the gate's folder, `deadline_s` that of one run.
  GateRuns(std::filesystem::path out, double deadline_s, const GateProgress& progress);

  /// Makes a folder below the gate's own and returns it. Throws SystemError{environment}.
  std::filesystem::path make_home(const std::string& folder) const;
  /// Starts `line` in a home that was made, with `environment` beside HETEROPERF_OUT.
  BegunRun begin(const std::string& side, const std::string& line, const std::string& folder,
                 const std::vector<std::string>& environment = {}) const;
  /// Waits for the end and reads the record. Throws as run_gate() says.
  RunDigest finish(BegunRun& run);
  /// Throws what an outcome means that is neither success nor a run that the rules forbid.
  void check(const BegunRun& run, const CommandOutcome& outcome) const;

 private:
  RunDigest record_of(const BegunRun& run, const CommandOutcome& outcome) const;
  void require_new(const RunDigest& digest, const BegunRun& run);

  std::filesystem::path out_;
  double deadline_s_;
  const GateProgress& progress_;
  std::map<std::string, std::string> seen_;  ///< folder by run_id, of both sides
};

}  // namespace heteroperf
