#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runners/cluster/shared_module.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// The ways in which collectives among ranks on one host move data in the mpi transport. Where one
/// of them is not open, the one before it is taken; Communicator::path() says which and why.
enum class HostPath {
  messages,       ///< MPI messages, as between hosts
  shared_memory,  ///< copies through memory that the ranks share
  single_copy,    ///< the same, and large data straight between the ranks' buffers
};
constexpr std::array<const char*, 3> value_names(HostPath) {
  return {"messages", "shared_memory", "single_copy"};
}

/// Joins the ranks of a run: the memory of one process, MPI, or NCCL beside MPI.
enum class Transport { threads, mpi, nccl };
constexpr std::array<const char*, 3> value_names(Transport) { return {"threads", "mpi", "nccl"}; }

/// The part `comm.*` of the configuration.
struct CommConfig {
  double timeout_s = 30.0;   ///< a wait fails when its peer shows no progress for this long
  double heartbeat_s = 0.5;  ///< period of the sign of life
  /// Until all ranks of the launcher have come: those of a large job start minutes apart.
  double join_timeout_s = 300.0;
  HostPath host_path = HostPath::single_copy;  ///< the widest that is allowed
  bool check = false;  ///< ranks that disagree are found and named, whatever the transport
};

/// One rank's view of all ranks of a run.
struct World {
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<ControlChannel> control;
};

/// Runs `body` on `ranks` threads of this process, each with its World, and joins them. The first
/// exception a rank throws is told to the others (their waits throw PeerError) and rethrown here.
void run_on_threads(int ranks, const CommConfig& config,
                    const std::function<void(World& world)>& body);

/// The place that a launcher (Open MPI, PMIx, Slurm) gave this process by its environment.
struct LaunchedRank {
  int rank = 0, size = 1;
  std::string launcher;  ///< "mpirun", "srun"
};
/// Empty when this process is no rank of a launcher. Throws SystemError{environment} when the
/// launcher's variables make no sense.
std::optional<LaunchedRank> detect_launcher();

/// Throws SystemError{environment} where this program was built without MPI. Asked before anything
/// is started that needs MPI.
void check_mpi_is_built();

/// Initialises MPI and joins the launcher's world. Loads the MPI module on first use; throws
/// SystemError{environment} "not built with MPI (…)" or with the loader's words when it cannot.
World join_mpi_world(const CommConfig& config);

/// Leaves MPI in order (all ranks call it after their work). After a failure call `_exit` instead.
void leave_mpi_world(World world);

/// Asks without initialising MPI.
BackendStatus mpi_status();

}  // namespace heteroperf
