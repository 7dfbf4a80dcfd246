#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/discovery/rank_descriptor.hpp"
#include "runners/comm/world.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {

/// Who takes part in a verb that works on several ranks.
struct RankSession {
  int ranks = 0;                  ///< 0: the launcher's world, or one per usable core
  std::string transport;          ///< "threads", "mpi", "nccl"; "": the launcher's, else threads
  std::vector<std::string> argv;  ///< this program's words, to start it again under mpirun
  CommConfig comm;
};

/// The work of every rank, and of the rank that speaks when the ranks cannot go on: rank 0, or the
/// next one where rank 0 is lost without a word. `keep` shows what there is and writes all that
/// stdout gets; stderr is told here.
struct RankWork {
  std::function<ExitCode(World&)> body;
  std::function<void(const Error&)> keep;
};

/// Describes this rank to the others; its library is told with the major version.
RankDescriptor describe_rank(const Communicator& world);

/// Throws UserError for a transport that is not known, a count that is not positive or differs
/// from the launcher's world; all at once.
void check_session(const RankSession& session);

/// Runs `work` on every rank: threads of this process, this program again under mpirun, or the
/// launcher's world. Returns rank 0's exit code, or that of what a rank threw. Throws before the
/// ranks begin: what check_session() finds, SystemError{environment} without MPI.
ExitCode run_session(const RankSession& session, const RankWork& work);

/// The same for one rank of a launcher's world. A rank that cannot go on tells the others, runs
/// `keep` on rank 0 and ends the process at once: MPI cannot be left in order without its peers.
ExitCode run_launched_rank(const LaunchedRank& launched, const CommConfig& comm,
                           const RankWork& work);

/// Ends rank 0's process at once, and tells the other ranks why: for a rank of which a thread hangs
/// where nothing can end it. `control`: of the run that goes on, where there is one.
[[noreturn]] void abandon_run(const std::weak_ptr<ControlChannel>& control, const Error& error);

}  // namespace heteroperf
