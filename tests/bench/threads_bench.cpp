// All-reduce of two threads of one process against MPI_Allreduce of two processes, in turns: while
// one side works the other waits in a sleep.
//   mpirun -n 2 --bind-to core threads_bench [--rounds N]
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "metrics/statistics.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

constexpr std::array<std::size_t, 5> sizes{65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

double seconds_of_mpi(std::vector<float>& values, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  double took = (MPI_Wtime() - start) / calls;
  MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return took;
}

/// Both ranks of MPI are bound to a core each; the threads take the same two.
double seconds_of_threads(std::size_t count, int calls, const CpuSet& cpus) {
  double seconds = 0;
  run_on_threads(2, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    if (cpus.size() >= 2) bind_this_thread({cpus[rank]});
    std::vector<float> values(count, 1.0F);
    const CallTime time = time_calls(
        *world.communicator, [&] { world.communicator->all_reduce(std::span<float>(values)); },
        {2, calls, Seconds(0)});
    if (rank == 0) seconds = time.median.value();
  });
  return seconds;
}

/// The processes that sleep must not poll.
void sleep_until_told(int rank, const CpuSet& cpus, std::size_t count, int calls,
                      double& threads_s) {
  if (rank == 0) {
    threads_s = seconds_of_threads(count, calls, cpus);
    MPI_Send(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    return;
  }
  int arrived = 0;
  while (arrived == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    MPI_Iprobe(0, 0, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
  }
  MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void compare(int rank, int rounds, const CpuSet& cpus) {
  if (rank == 0)
    fmt::print("{:>10} {:>12} {:>12} {:>28}\n", "bytes", "mpi us", "threads us", "mpi / threads");
  for (const std::size_t bytes : sizes) {
    const int calls = static_cast<int>(std::clamp<std::size_t>((64 << 20) / bytes, 3, 200));
    std::vector<float> values(bytes / sizeof(float), 1.0F);
    std::vector<double> mpi, threads, ratios;
    for (int round = 0; round < rounds; ++round) {
      mpi.push_back(seconds_of_mpi(values, calls));
      double threads_s = 1;
      sleep_until_told(rank, cpus, values.size(), calls, threads_s);
      threads.push_back(threads_s);
      ratios.push_back(mpi.back() / threads_s);
    }
    if (rank != 0) continue;
    const Interval interval = bootstrap_interval(ratios, median);
    fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>28}\n", bytes, median(mpi) * 1e6,
               median(threads) * 1e6,
               fmt::format("{:.2f} [{:.2f}, {:.2f}]", median(ratios), interval.low, interval.high));
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  int rank = 0, rounds = 15;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc == 3 && std::strcmp(argv[1], "--rounds") == 0) rounds = std::atoi(argv[2]);
  heteroperf::compare(rank, rounds, {0, 1});
  MPI_Finalize();
  return 0;
}
