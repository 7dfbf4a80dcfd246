#include <fmt/format.h>

#include "runners/cluster/shared_module.hpp"
#include "runners/comm/checked/checked_communicator.hpp"
#include "runners/comm/control/tcp_control.hpp"
#include "runners/comm/mpi/mpi_backend.hpp"
#include "runners/comm/mpi_launch.hpp"
#include "runners/comm/world.hpp"

// Joining goes in this order: initialise MPI; see whether its world is the launcher's; open the
// control channel, whose address rank 0 sends to the others by MPI; then make the communicator,
// whose waits already ask the control channel. Leaving goes backwards.

namespace heteroperf {
namespace {

/// The time for MPI_Finalize, after everybody has said goodbye.
constexpr double finalise_deadline_s = 30.0;

constexpr bool mpi_built = HETEROPERF_WITH_MPI != 0;

MpiBackend& load_mpi() {
  check_mpi_is_built();
  const SharedModule module = SharedModule::open("mpi", Visibility::global);
  return *module.symbol<HeteroperfMpiEntry>("heteroperf_mpi_backend")();
}

/// An MPI library that does not understand the launcher makes every rank a world of its own.
void check_world_size(int size) {
  const auto launched = detect_launcher();
  if (!launched || launched->size == size) return;
  throw SystemError(
      fmt::format("{} started {} ranks, MPI sees {}", launched->launcher, launched->size, size),
      "the launcher does not belong to the MPI library this program uses",
      "Start it with that library's mpirun, or try srun --mpi=pmix", ErrorKind::environment);
}

std::string first_words(const std::string& text) {
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace

World join_mpi_world(const CommConfig& config) {
  // A deadline needs two signs of life or more.
  HETEROPERF_EXPECT(config.heartbeat_s > 0 && config.heartbeat_s <= config.timeout_s / 2);
  die_with_launcher();
  MpiBackend& backend = load_mpi();
  backend.initialise(config.join_timeout_s);
  const int size = backend.size();
  const RankId rank(backend.rank());
  check_world_size(size);

  const Reach reach =
      backend.on_one_host(config.join_timeout_s) ? Reach::this_host : Reach::other_hosts;
  ControlHub hub;
  if (rank == RankId(0)) hub = open_control_hub(size, config, reach);
  backend.broadcast_text(hub.address, config.join_timeout_s);
  std::shared_ptr<TcpControl> control = hub.control;
  if (control) {
    await_control_spokes(*control);
  } else {
    control = open_control_spoke(rank, size, config, hub.address);
  }
  auto communicator = backend.make_world(control, {.host_path = config.host_path});
  if (config.check) communicator = make_checked_communicator(std::move(communicator));
  return {std::move(communicator), std::move(control)};
}

void leave_mpi_world(World world) {
  auto control = std::dynamic_pointer_cast<TcpControl>(world.control);
  HETEROPERF_EXPECT(control && world.communicator);
  control->announce_finished();
  world.communicator->barrier();
  control->close();
  world.communicator.reset();
  load_mpi().finalise(finalise_deadline_s);
}

void check_mpi_is_built() {
  if (mpi_built) return;
  throw SystemError("not built with MPI", "", "Configure with -DHETEROPERF_MPI=ON",
                    ErrorKind::environment);
}

BackendStatus mpi_status() {
  BackendStatus status;
  status.built = mpi_built;
  try {
    status.version = first_words(load_mpi().version());
    find_mpirun();
    status.usable = true;
  } catch (const Error& error) {
    status.reason = error.what();
  }
  return status;
}

}  // namespace heteroperf
