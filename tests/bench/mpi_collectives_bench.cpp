// Our collectives against the MPI library's own on the same ranks and buffers, in turns:
//   mpirun -n 2 --bind-to core mpi_collectives_bench [OPERATION… --min B --max B --rounds N
//                                                     --path messages|shared_memory|single_copy
//                                                     --json]
// Bytes are the whole vector: of all ranks together for all_gather, reduce_scatter, all_to_all.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "metrics/statistics.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

struct Settings {
  std::vector<std::string> operations;
  std::size_t min_bytes = 8, max_bytes = std::size_t{64} << 20;
  int rounds = 21;
  bool json = false;
  HostPath path = HostPath::single_copy;
};

/// One operation on one size.
struct Task {
  Communicator& comm;
  std::size_t ranks, block;  ///< elements per rank
  std::vector<float> in, out;

  std::span<const float> all_in() const { return in; }
  std::span<float> all_out() { return out; }
  int count() const { return static_cast<int>(in.size()); }
  int part() const { return static_cast<int>(block); }
  std::vector<std::size_t> counts() const { return std::vector<std::size_t>(ranks, block); }
};

struct Operation {
  const char* name;
  void (*ours)(Task&, Counts);
  void (*theirs)(Task&);
};

constexpr Operation operations[] = {
    {"all_reduce",
     [](Task& t, Counts) { t.comm.all_reduce(t.all_in(), t.all_out(), Reduction::sum); },
     [](Task& t) {
       MPI_Allreduce(t.in.data(), t.out.data(), t.count(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
     }},
    {"reduce",
     [](Task& t, Counts) { t.comm.reduce(t.all_in(), t.all_out(), RankId(0), Reduction::sum); },
     [](Task& t) {
       MPI_Reduce(t.in.data(), t.out.data(), t.count(), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
     }},
    {"broadcast", [](Task& t, Counts) { t.comm.broadcast(t.all_out(), RankId(0)); },
     [](Task& t) { MPI_Bcast(t.out.data(), t.count(), MPI_FLOAT, 0, MPI_COMM_WORLD); }},
    {"all_gather",
     [](Task& t, Counts counts) {
       t.comm.all_gather(t.all_in().first(t.block), t.all_out(), counts);
     },
     [](Task& t) {
       MPI_Allgather(t.in.data(), t.part(), MPI_FLOAT, t.out.data(), t.part(), MPI_FLOAT,
                     MPI_COMM_WORLD);
     }},
    {"reduce_scatter",
     [](Task& t, Counts counts) {
       t.comm.reduce_scatter(t.all_in(), t.all_out().first(t.block), counts, Reduction::sum);
     },
     [](Task& t) {
       MPI_Reduce_scatter_block(t.in.data(), t.out.data(), t.part(), MPI_FLOAT, MPI_SUM,
                                MPI_COMM_WORLD);
     }},
    {"all_to_all",
     [](Task& t, Counts counts) { t.comm.all_to_all(t.all_in(), counts, t.all_out(), counts); },
     [](Task& t) {
       MPI_Alltoall(t.in.data(), t.part(), MPI_FLOAT, t.out.data(), t.part(), MPI_FLOAT,
                    MPI_COMM_WORLD);
     }},
    {"barrier", [](Task& t, Counts) { t.comm.barrier(); },
     [](Task&) { MPI_Barrier(MPI_COMM_WORLD); }},
};

/// Seconds per call on the slowest rank.
template <class Call>
double time_calls(Communicator& comm, int calls, Call call) {
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  double slowest = taken.count() / calls;
  comm.all_reduce(std::span<double>(&slowest, 1), Reduction::max);
  return slowest;
}

struct Comparison {
  double ours_s, theirs_s, ratio;  ///< medians; ratio: theirs / ours
  double ours_min_s, theirs_min_s;
  Interval interval;  ///< of the ratio, 95 %
};

Comparison compare(const Operation& operation, Task& task, int rounds) {
  const std::vector<std::size_t> counts = task.counts();
  const auto ours = [&] { operation.ours(task, counts); };
  const auto theirs = [&] { operation.theirs(task); };
  time_calls(task.comm, 1, ours);
  time_calls(task.comm, 1, theirs);
  constexpr double aim_s = 5e-4;
  const double guess_s = time_calls(task.comm, 3, ours) + 1e-9;
  const int calls = static_cast<int>(std::clamp(aim_s / guess_s, 1.0, 500.0));
  std::vector<double> ours_s, theirs_s, ratios;
  for (int round = 0; round < rounds; ++round) {
    const bool first = round % 2 == 0;
    double mine = first ? time_calls(task.comm, calls, ours) : 0;
    theirs_s.push_back(time_calls(task.comm, calls, theirs));
    if (!first) mine = time_calls(task.comm, calls, ours);
    ours_s.push_back(mine);
    ratios.push_back(theirs_s.back() / mine);
  }
  return {median(ours_s),
          median(theirs_s),
          median(ratios),
          *std::ranges::min_element(ours_s),
          *std::ranges::min_element(theirs_s),
          bootstrap_interval(ratios, median)};
}

void print(const Settings& settings, const char* name, std::size_t bytes, std::size_t ranks,
           const Comparison& c) {
  if (settings.json) {
    fmt::print(
        "{{\"operation\":\"{}\",\"ranks\":{},\"bytes\":{},\"ours_s\":{:.9g},\"mpi_s\":{:.9g},"
        "\"ratio\":{:.4g},\"ci95\":[{:.4g},{:.4g}],\"ours_min_s\":{:.9g},\"mpi_min_s\":{:.9g}}}\n",
        name, ranks, bytes, c.ours_s, c.theirs_s, c.ratio, c.interval.low, c.interval.high,
        c.ours_min_s, c.theirs_min_s);
  } else {
    fmt::print("{:<15}{:>5}{:>12}{:>12.2f}{:>12.2f}{:>8.2f}   [{:.2f}, {:.2f}]{:>14.2f}{:>12.2f}\n",
               name, ranks, bytes, c.ours_s * 1e6, c.theirs_s * 1e6, c.ratio, c.interval.low,
               c.interval.high, c.ours_min_s * 1e6, c.theirs_min_s * 1e6);
  }
  std::fflush(stdout);
}

void measure(const Settings& settings, Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const bool speaks = comm.rank() == RankId(0);
  if (speaks) std::fprintf(stderr, "path: %s\n", comm.path().c_str());
  if (speaks && !settings.json) {
    fmt::print("{:<15}{:>5}{:>12}{:>12}{:>12}{:>8}   95 % interval  least: ours, MPI\n",
               "operation", "ranks", "bytes", "ours us", "MPI us", "ratio");
  }
  for (const Operation& operation : operations) {
    if (!settings.operations.empty() &&
        std::ranges::find(settings.operations, operation.name) == settings.operations.end()) {
      continue;
    }
    for (std::size_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= 2) {
      const std::size_t block = bytes / sizeof(float) / ranks;
      if (block == 0) continue;
      Task task{comm, ranks, block, std::vector<float>(block * ranks, 1.0F),
                std::vector<float>(block * ranks, 2.0F)};
      const Comparison result = compare(operation, task, settings.rounds);
      if (speaks) print(settings, operation.name, task.in.size() * sizeof(float), ranks, result);
      if (std::strcmp(operation.name, "barrier") == 0) break;
    }
  }
}

std::size_t parse_bytes(const std::string& text) {
  std::size_t end = 0;
  const std::size_t value = std::stoull(text, &end);
  const std::size_t unit = std::string("KMG").find(text.substr(end, 1));
  return end == text.size() || unit == std::string::npos ? value : value << (10 * (unit + 1));
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (!flag.starts_with("--")) {
      settings.operations.push_back(flag);
    } else if (flag == "--json") {
      settings.json = true;
    } else if (i + 1 < argc) {
      const std::string value = argv[++i];
      if (flag == "--min") settings.min_bytes = parse_bytes(value);
      if (flag == "--max") settings.max_bytes = parse_bytes(value);
      if (flag == "--rounds") settings.rounds = std::stoi(value);
      if (flag == "--path" && value == "messages") settings.path = HostPath::messages;
      if (flag == "--path" && value == "shared_memory") settings.path = HostPath::shared_memory;
    }
  }
  return settings;
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  using namespace heteroperf;
  try {
    const Settings settings = parse(argc, argv);
    World world = join_mpi_world({.host_path = settings.path});
    measure(settings, *world.communicator);
    leave_mpi_world(std::move(world));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    _exit(6);
  }
}
