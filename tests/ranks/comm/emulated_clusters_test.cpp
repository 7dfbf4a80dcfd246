// Started by scripts/emulate_clusters.sh: emulated_clusters RANKS_PER_CLUSTER… BYTES_PER_S. Looks
// at the bed from inside: as many hosts as clusters, right sums, and a shaped link between them.
// emulated_clusters for-ever sums until it cannot go on.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

using HostName = std::array<std::uint8_t, 64>;

/// One line per finding.
using Findings = std::vector<std::string>;

std::vector<std::string> host_names(Communicator& comm) {
  HostName local{};
  gethostname(reinterpret_cast<char*>(local.data()), local.size() - 1);
  std::vector<std::uint8_t> all(local.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span<const std::uint8_t>(local), std::span<std::uint8_t>(all));
  std::vector<std::string> names;
  for (std::size_t at = 0; at < all.size(); at += local.size()) {
    names.emplace_back(reinterpret_cast<const char*>(all.data() + at));
  }
  return names;
}

void check_hosts(Communicator& comm, const std::vector<int>& clusters, Findings& wrong) {
  const auto names = host_names(comm);
  std::size_t first = 0;
  for (int ranks : clusters) {
    const std::size_t end = first + static_cast<std::size_t>(ranks);
    for (std::size_t r = first; r < end; ++r) {
      if (names[r] != names[first]) wrong.push_back(names[r] + " within " + names[first]);
      if (first > 0 && names[r] == names[first - 1]) wrong.push_back("two clusters: " + names[r]);
    }
    first = end;
  }
}

void check_sum(Communicator& comm, Findings& wrong) {
  std::vector<std::int64_t> values(300000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(i) * (comm.rank().value() + 1);
  }
  comm.all_reduce(std::span<std::int64_t>(values));
  const std::int64_t factor = comm.size() * (comm.size() + 1) / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == static_cast<std::int64_t>(i) * factor) continue;
    return wrong.push_back(fmt::format("element {} sums to {}", i, values[i]));
  }
}

/// From the first rank to the last, another cluster's, and an answer back: however busy the
/// machine is, it cannot take less time than the card allows.
void check_rate(Communicator& comm, double bytes_per_s, Findings& wrong) {
  const RankId first(0), last(comm.size() - 1);
  std::vector<std::uint8_t> block(4 << 20);
  std::uint8_t answer = 0;
  const auto begin = std::chrono::steady_clock::now();
  if (comm.rank() == first) {
    comm.send(std::span<const std::uint8_t>(block), last);
    comm.receive(std::span<std::uint8_t>(&answer, 1), last);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double least_s = static_cast<double>(block.size() - (128 << 10)) / bytes_per_s;
    if (took.count() < least_s) {
      wrong.push_back(fmt::format("{} bytes crossed in {} s, the card needs {} s", block.size(),
                                  took.count(), least_s));
    }
  } else if (comm.rank() == last) {
    comm.receive(std::span<std::uint8_t>(block), first);
    comm.send(std::span<const std::uint8_t>(&answer, 1), first);
  }
}

int look_at_bed(const std::vector<int>& clusters, double bytes_per_s) {
  World world = join_mpi_world({});
  Communicator& comm = *world.communicator;
  Findings wrong;
  check_hosts(comm, clusters, wrong);
  check_sum(comm, wrong);
  check_rate(comm, bytes_per_s, wrong);
  for (const std::string& line : wrong) {
    std::fprintf(stderr, "rank %d: %s\n", comm.rank().value(), line.c_str());
  }
  leave_mpi_world(std::move(world));
  return wrong.empty() ? 0 : 1;
}

/// Sums until the link is cut. Every survivor says why it cannot go on.
[[noreturn]] void sum_for_ever() {
  CommConfig config;
  config.timeout_s = 3;
  World world = join_mpi_world(config);
  std::vector<float> values(100000, 1.0F);
  for (std::uint64_t n = 0;; ++n) {
    world.communicator->all_reduce(std::span<float>(values), Reduction::average);
    if (n == 3 && world.communicator->rank() == RankId(0)) std::fprintf(stderr, "summing\n");
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  const bool for_ever = argc == 2 && std::string(argv[1]) == "for-ever";
  std::vector<int> clusters;
  for (int i = 1; i + 1 < argc; ++i) clusters.push_back(std::atoi(argv[i]));
  if (clusters.empty() && !for_ever) return 2;
  try {
    if (for_ever) heteroperf::sum_for_ever();
    return heteroperf::look_at_bed(clusters, std::atof(argv[argc - 1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(nullptr);
    _exit(6);
  }
}
