#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/comm/discovery/rank_descriptor.hpp"
#include "runners/comm/world.hpp"
#include "suite/config/placement.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {

/// Who takes part in a command that works on several ranks.
struct RankSession {
  int ranks = 0;                       ///< 0: the launcher's world, or one per usable core
  std::optional<Transport> transport;  ///< empty: the launcher's, else threads
  std::vector<std::string> argv;       ///< this program's words, to start it again under mpirun
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

/// Runs `work` on every rank: in the launcher's world, on threads of this process, or in this
/// program again under mpirun. Returns rank 0's exit code, or that of what a rank threw; stop
/// signals are the caller's. Throws SystemError{environment} without MPI. In a launcher's world a
/// rank that cannot go on tells the others, runs `keep` on rank 0 and ends the process at once: MPI
/// cannot be left in order without its peers.
ExitCode start_ranks(const RankSession& session, const RankWork& work);

/// Throws UserError for a count that is not positive or differs from the launcher's world, and for
/// threads under a launcher; all at once.
void check_session(const RankSession& session);

/// Calls start_ranks() for a verb whose ranks have no placement of their own: hears stop signals,
/// binds threads where they fit the cores, and holds launched ranks to one command. Throws what
/// check_session() finds.
ExitCode run_session(const RankSession& session, const RankWork& work);

/// Throws Error{interrupted} on all ranks when one of them got a stop signal. Collective.
void stop_if_asked(Communicator& world);

/// The share of one rank of a launcher's world in its host's cores: ranks of one host with the same
/// affinity mask share it, ranks with masks of their own keep them.
struct HostShare {
  int ranks_on_host = 1;
  int ranks_on_mask = 1;
  int index_on_mask = 0;
};
/// Finds the share by comparing all ranks. Collective.
HostShare share_of_host(Communicator& world, const UsableCores& cores);

/// The placement of a rank under a launcher, from its share.
Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share);

/// Gathers the bindings of all ranks of the world, in rank order, on every rank. Collective.
std::vector<RankBinding> gather_bindings(Communicator& world, const RankBinding& binding);

/// Ends rank 0's process at once, and tells the other ranks why: for a rank of which a thread hangs
/// where nothing can end it. `control`: of the run that goes on, where there is one.
[[noreturn]] void abandon_run(const std::weak_ptr<ControlChannel>& control, const Error& error);

}  // namespace heteroperf
