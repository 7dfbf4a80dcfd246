#include "runners/comm/world.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/comm/control_channel.hpp"

// Values of the configuration and the launcher's environment, checked once for all transports. A
// launcher (mpirun, srun) tells each process its rank and the number of ranks in environment
// variables; their names depend on the launcher.

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
  long long value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error == std::errc() && stop == end && value >= 0) return value;
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

void check_comm_config(const CommConfig& config) {
  ProblemList problems;
  const auto check_positive = [&problems](const char* key, double value) {
    if (!(value > 0)) problems.add(fmt::format("{}={}", key, value), "must be positive");
  };
  check_positive("comm.timeout_s", config.timeout_s);
  check_positive("comm.heartbeat_s", config.heartbeat_s);
  check_positive("comm.join_timeout_s", config.join_timeout_s);
  if (config.timeout_s > 0 && config.heartbeat_s > config.timeout_s / 2) {
    problems.add(fmt::format("comm.heartbeat_s={}", config.heartbeat_s),
                 fmt::format("a deadline of comm.timeout_s={} needs two signs of life or more",
                             config.timeout_s),
                 "Lower comm.heartbeat_s or raise comm.timeout_s");
  }
  problems.throw_if_any();
}

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
