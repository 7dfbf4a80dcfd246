// The pipelined relay against the serial one (whole buffer to the host, across, to the device) with
// three equal stages, all modelled: relay_bench [MIB] [STAGE_MB_PER_S] [ROUNDS].
// The bound is the sum of the stages over the slowest one, here 3.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/relay/paced_copier.hpp"
#include "runners/comm/relay/relay.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  std::size_t bytes;
  BytesPerSecond rate;
  int rounds;
};

Cluster two_hosts(BytesPerSecond rate) {
  Cluster cluster;
  cluster.classes.emplace_back().name = "modelled";
  cluster.ranks = {{"modelled", "a", "a", {}}, {"modelled", "b", "b", {}}};
  const LinkCurve curve(Seconds(20e-6), rate);
  cluster.links = {{"a", "a", {}, curve, "given"},
                   {"b", "b", {}, curve, "given"},
                   {"a", "b", {}, curve, "given"}};
  return cluster;
}

struct Way {
  const char* name;
  RelayMode mode;
  bool adds;
  std::vector<double> times_s{};

  double median_s() const {
    auto sorted = times_s;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// From the barrier to the receiver's end, on the receiver.
double one_relay(Communicator& comm, Relay& relay, std::vector<float>& values, bool adds) {
  const DeviceBytes buffer{reinterpret_cast<std::byte*>(values.data()), values.size() * 4};
  comm.barrier();
  const auto begin = Clock::now();
  if (comm.rank() == RankId(0)) {
    relay.send(buffer, RankId(1));
  } else if (adds) {
    relay.receive_add(buffer, DataType::f32, RankId(0));
  } else {
    relay.receive(buffer, RankId(0));
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What rank 1 measures, and how late the model was kept.
PaceReport measure(const Setting& setting, std::vector<Way>& ways, const RelayCosts& costs) {
  PaceReport pace;
  run_on_threads(2, {}, [&](World& world) {
    const auto comm =
        make_paced_communicator(std::move(world.communicator), two_hosts(setting.rate));
    const CopyEngine engine{Seconds(10e-6), setting.rate};
    PacedCopier copier("modelled:0", engine, engine);
    std::vector<float> values(setting.bytes / 4, 1.0F);
    for (int round = 0; round < setting.rounds; ++round) {
      for (Way& way : ways) {
        RelayConfig config;
        config.mode = way.mode;
        config.costs = costs;
        Relay relay(*comm, copier, config);
        const double time_s = one_relay(*comm, relay, values, way.adds);
        if (comm->rank() == RankId(1)) way.times_s.push_back(time_s);
      }
    }
    if (comm->rank() == RankId(1)) pace = *pace_report(*comm);
  });
  return pace;
}

void bench(const Setting& setting) {
  std::vector<Way> ways{{"serial", RelayMode::serial, false},
                        {"pipelined", RelayMode::pipelined, false},
                        {"pipelined, adding", RelayMode::pipelined, true}};
  const RelayCosts costs{Seconds(100e-6), setting.rate, setting.rate, setting.rate};
  const PaceReport pace = measure(setting, ways, costs);

  const Bytes chunk = best_chunk(Bytes(setting.bytes), costs);
  fmt::print("{} bytes, three stages of {:g} MB/s, chunk {} bytes, median of {} rounds\n",
             setting.bytes, setting.rate.value() / 1e6, chunk.value(), setting.rounds);
  for (const Way& way : ways) {
    fmt::print("  {:18} {:8.2f} ms  {:.2f}x of serial\n", way.name, way.median_s() * 1e3,
               ways[0].median_s() / way.median_s());
  }
  fmt::print("  the model's waits: {}, {} late, by {:.3f} ms at most\n", pace.waits,
             pace.late_waits, pace.greatest_lag.value() * 1e3);
}

double argument(int argc, char** argv, int index, double otherwise) {
  return argc > index ? std::atof(argv[index]) : otherwise;
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  using namespace heteroperf;
  const double mib = argument(argc, argv, 1, 16), rate = argument(argc, argv, 2, 500);
  const int rounds = static_cast<int>(argument(argc, argv, 3, 11));
  if (!(mib > 0) || !(rate > 0) || rounds < 1) {
    fmt::print(stderr, "usage: relay_bench [MIB] [STAGE_MB_PER_S] [ROUNDS]\n");
    return 2;
  }
  bench({static_cast<std::size_t>(mib * (1 << 20)) / 4 * 4, BytesPerSecond(rate * 1e6), rounds});
}
