#include "runners/comm/world.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/comm/control_channel.hpp"

// The launcher's environment, checked once for all transports. A launcher (mpirun, srun) tells each
// process its rank and the number of ranks in environment variables; their names depend on the
// launcher.

namespace heteroperf {

namespace {

/// A rank that is silent may only be slow, so its text says what the user can do about that; a rank
/// that failed has said more in its own log.
Problem explain(const RankFailure& failure, const std::string& operation) {
  const int rank = failure.rank.value();
  if (failure.kind == ErrorKind::timeout) {
    return {fmt::format("rank {} stopped answering during {}", rank, operation), failure.reason,
            "Look at its process and host, or raise comm.timeout_s"};
  }
  return {fmt::format("rank {} failed during {}", rank, operation), failure.reason,
          "See its log above"};
}

}  // namespace

PeerError::PeerError(RankFailure failure, const std::string& operation)
    : Error(failure.kind, {explain(failure, operation)}), failure_(std::move(failure)) {}

namespace {

/// The environment variables by which a launcher tells a process its place.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};

constexpr Launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // Open MPI
    {"mpirun", "PMI_RANK", "PMI_SIZE"},  // MPICH, Intel MPI, srun --mpi=pmi2
};

/// Slurm gives numbers from here on to steps that run no tasks of the job: the batch script, the
/// shell of salloc.
constexpr long long first_special_step = 0xfffffff0;

/// The value of a variable. Empty when it is not set; throws when it is no number.
std::optional<long long> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const auto value = parse_integer(text);
  if (value && *value >= 0) return value;
  throw SystemError(fmt::format("{}={} in the environment", name, text), "not a rank or count",
                    "Unset it, or start the program with mpirun or srun", ErrorKind::environment);
}

/// The place that this launcher gave the process. Empty when it did not start the process.
std::optional<LaunchedRank> place(const Launcher& launcher) {
  const auto rank = number(launcher.rank);
  const auto size = number(launcher.size);
  if (!rank || !size) return std::nullopt;
  if (*rank < *size) {
    return LaunchedRank{static_cast<int>(*rank), static_cast<int>(*size), launcher.name};
  }
  throw SystemError(
      fmt::format("{}={} and {}={} in the environment", launcher.rank, *rank, launcher.size, *size),
      "a rank is smaller than the number of ranks",
      "Unset them, or start the program with mpirun or srun", ErrorKind::environment);
}

/// A step of one task is an ordinary process, because it has nobody to talk to.
std::optional<LaunchedRank> slurm_place() {
  const auto step = number("SLURM_STEP_ID");
  if (!step || *step >= first_special_step) return std::nullopt;
  auto rank = place({"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"});
  if (!rank) rank = place({"srun", "SLURM_PROCID", "SLURM_NTASKS"});
  if (rank && rank->size == 1) return std::nullopt;
  return rank;
}

}  // namespace

std::optional<LaunchedRank> detect_launcher() {
  for (const Launcher& launcher : launchers) {
    auto rank = place(launcher);
    if (!rank) continue;
    // srun --mpi=pmi2 sets the variables of MPICH's launcher, but not its file descriptor.
    if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("PMI_FD") == nullptr &&
        std::strcmp(launcher.rank, "PMI_RANK") == 0) {
      rank->launcher = "srun";
    }
    return rank;
  }
  return slurm_place();
}

}  // namespace heteroperf
