// All-reduce over two clusters: ours against the MPI library's own, in one run, round by round.
//   scripts/emulate_clusters.sh --clusters 2,2 --goodput -- two_clusters_bench --bytes 16777216
// With OMPI_MCA_coll_han_priority=100 before it, Open MPI's side is HAN.
#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "metrics/statistics.hpp"
#include "runners/comm/benchmark/collective_case.hpp"
#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

struct Options {
  std::size_t bytes = std::size_t{16} << 20;
  int rounds = 15;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--bytes") == 0)
      options.bytes = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--rounds") == 0) options.rounds = std::atoi(argv[i + 1]);
  }
  return options;
}

/// One way to sum the vector, and what its calls took: the slowest rank's time per round.
struct Way {
  std::string name;
  std::function<void()> call;
  std::vector<double> seconds;
};

std::unique_ptr<HybridCommunicator> hybrid(Communicator& world, const RankClusters& clusters,
                                           Algorithm algorithm, WireFormat wire) {
  HybridConfig config;
  config.clusters = clusters;
  config.wire = wire;
  config.rules = {{algorithm}};
  return make_hybrid_communicator(world.split(0, world.rank().value()), std::move(config));
}

std::string interval_text(const std::vector<double>& ratios) {
  const Interval interval = bootstrap_interval(ratios, median);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", median(ratios), interval.low, interval.high);
}

class Bench {
 public:
  Bench(World& world, const Options& options)
      : world_(*world.communicator),
        options_(options),
        values_(options.bytes / sizeof(float)),
        result_(values_.size()) {
    ExactValues{DataType::f32, world_.size(), 1}.fill(world_.rank(), 0, std::span<float>(values_));
    clusters_ =
        discover_clusters(world_, gather_descriptors(world_, describe_this_rank("mpi", "")));
    add("mpi", [this] {
      // Not in place: HAN of Open MPI 4.1 reads MPI_IN_PLACE as an address.
      MPI_Allreduce(values_.data(), result_.data(), static_cast<int>(values_.size()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
    });
    if (clusters_.clusters.size() < 2) return;
    add_hybrid("leader", Algorithm::leader, WireFormat::fp32);
    add_hybrid("split_rail", Algorithm::split_rail, WireFormat::fp32);
    add_hybrid("leader bf16", Algorithm::leader, WireFormat::bf16);
    add_hybrid("leader int8", Algorithm::leader, WireFormat::int8);
  }

  void run() {
    for (int round = -1; round < options_.rounds; ++round) {
      for (Way& way : ways_) {
        world_.barrier();
        const auto start = std::chrono::steady_clock::now();
        way.call();
        double took =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        world_.all_reduce(std::span(&took, 1), Reduction::max);
        if (round >= 0) way.seconds.push_back(took);
      }
    }
    if (world_.rank() == RankId(0)) print();
  }

 private:
  void add(std::string name, std::function<void()> call) {
    ways_.push_back({std::move(name), std::move(call), {}});
  }
  void add_hybrid(std::string name, Algorithm algorithm, WireFormat wire) {
    groups_.push_back(hybrid(world_, clusters_, algorithm, wire));
    HybridCommunicator& group = *groups_.back();
    add(std::move(name), [this, &group] {
      group.all_reduce(std::span<const float>(values_), std::span<float>(result_), Reduction::sum);
    });
  }

  void print() const {
    const char* goodput = std::getenv("HETEROPERF_GOODPUT_BYTES_PER_S");
    const double bound_s =
        goodput == nullptr ? 0 : static_cast<double>(options_.bytes) / std::atof(goodput);
    fmt::print("clusters: {} ({})\n{} bytes, {} rounds; bound n/B {:.2f} ms\n",
               clusters_.clusters.size(), clusters_.reason, options_.bytes, options_.rounds,
               bound_s * 1e3);
    fmt::print("{:<12} {:>10} {:>28} {:>28} {:>28}\n", "way", "median ms", "time / bound",
               "mpi time / time", "leader time / time");
    for (const Way& way : ways_) {
      fmt::print("{:<12} {:>10.2f} {:>28} {:>28} {:>28}\n", way.name, median(way.seconds) * 1e3,
                 bound_s > 0 ? interval_text(over(way.seconds, bound_s)) : "-",
                 interval_text(ratios(ways_[0], way)),
                 interval_text(ratios(ways_[ways_.size() > 1 ? 1 : 0], way)));
    }
  }
  static std::vector<double> over(std::vector<double> seconds, double bound_s) {
    for (double& one : seconds) one /= bound_s;
    return seconds;
  }
  static std::vector<double> ratios(const Way& a, const Way& b) {
    std::vector<double> result;
    for (std::size_t i = 0; i < a.seconds.size(); ++i)
      result.push_back(a.seconds[i] / b.seconds[i]);
    return result;
  }

  Communicator& world_;
  Options options_;
  std::vector<float> values_, result_;
  RankClusters clusters_;
  std::vector<std::unique_ptr<HybridCommunicator>> groups_;
  std::vector<Way> ways_;
};

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  using namespace heteroperf;
  try {
    World world = join_mpi_world({});
    Bench(world, parse(argc, argv)).run();
    leave_mpi_world(std::move(world));
  } catch (const std::exception& error) {
    fmt::print(stderr, "two_clusters_bench: {}\n", error.what());
    std::_Exit(6);
  }
  return 0;
}
