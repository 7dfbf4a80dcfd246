#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

/// How one launcher tells a process its place.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};

constexpr Launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // Open MPI
    {"mpirun", "PMI_RANK", "PMI_SIZE"},  // MPICH, Intel MPI, srun --mpi=pmi2
};

/// Slurm numbers the steps that are no steps (batch script, salloc's shell) from here on.
constexpr long long first_special_step = 0xfffffff0;

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

std::optional<LaunchedRank> place(const char* launcher, const char* rank_name,
                                  const char* size_name) {
  const auto rank = number(rank_name);
  const auto size = number(size_name);
  if (!rank || !size) return std::nullopt;
  if (*rank < *size)
    return LaunchedRank{static_cast<int>(*rank), static_cast<int>(*size), launcher};
  throw SystemError(
      fmt::format("{}={} and {}={} in the environment", rank_name, *rank, size_name, *size),
      "a rank is smaller than the number of ranks",
      "Unset them, or start the program with mpirun or srun", ErrorKind::environment);
}

/// A step of one task is an ordinary process: it has nobody to talk to.
std::optional<LaunchedRank> slurm_place() {
  const auto step = number("SLURM_STEP_ID");
  if (!step || *step >= first_special_step) return std::nullopt;
  auto found = place("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  if (!found) found = place("srun", "SLURM_PROCID", "SLURM_NTASKS");
  if (found && found->size == 1) return std::nullopt;
  return found;
}

}  // namespace

std::optional<LaunchedRank> detect_launcher() {
  for (const Launcher& launcher : launchers) {
    auto found = place(launcher.name, launcher.rank, launcher.size);
    if (!found) continue;
    if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("PMI_FD") == nullptr &&
        std::strcmp(launcher.rank, "PMI_RANK") == 0) {
      found->launcher = "srun";
    }
    return found;
  }
  return slurm_place();
}

}  // namespace heteroperf
