#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runners/comm/communicator.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// How collectives among ranks on one host move data in the mpi transport; where one way is not
/// open (see PathReport), the one before it is taken.
enum class HostPath {
  messages,       ///< MPI messages, as between hosts
  shared_memory,  ///< through memory that the ranks share
  single_copy,    ///< and large data straight between the ranks' buffers
};

/// "messages", "shared_memory", "single_copy".
const char* to_string(HostPath path);
/// Throws UserError naming them.
HostPath parse_host_path(const std::string& text);

/// `comm.*` of the configuration.
struct CommConfig {
  double timeout_s = 30.0;   ///< a wait fails when its peer shows no progress for this long
  double heartbeat_s = 0.5;  ///< period of the sign of life
  /// Until all ranks of the launcher have come: those of a large job start minutes apart.
  double join_timeout_s = 300.0;
  std::string host_path = "single_copy";  ///< the widest HostPath allowed
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

/// The launcher's environment (Open MPI, PMIx, Slurm) when this process is one of its ranks.
struct LaunchedRank {
  int rank = 0, size = 1;
  std::string launcher;  ///< "mpirun", "srun"
};
std::optional<LaunchedRank> detect_launcher();

/// Throws SystemError{environment} where this program was built without MPI: before anything is
/// started that needs it.
void check_mpi_is_built();

/// Initialises MPI and joins the launcher's world. Loads the MPI module on first use; throws
/// SystemError{environment} "not built with MPI (…)" or with the loader's words when it cannot.
World join_mpi_world(const CommConfig& config);

/// Leaves MPI in order (all ranks call it after their work). After a failure call `_exit` instead.
void leave_mpi_world(World world);

/// Version text of the MPI library, without initialising it; empty reason when usable.
struct BackendStatus {
  bool built = false, usable = false;
  std::string version;
  std::string reason;  ///< why it is not usable
};
BackendStatus mpi_status();

}  // namespace heteroperf
