// Pipeline schedules: simulators (instructions per second), lowering, validation, search. Cost
// grows linearly where items_per_second stays the same from size to size.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/lower/lowering.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

StageCosts costs_of(int ranks) { return uniform_costs(ranks, 10, 11, 8, 0.5); }

ScheduleRequest request(int ranks, int micro_batches, int chunks) {
  ScheduleRequest result;
  result.ranks = ranks;
  result.micro_batches = micro_batches;
  result.costs = costs_of(ranks);
  if (chunks > 1) result.chunks = chunks;
  return result;
}

/// 1F1B, so that a simulator is measured without any generator.
Schedule one_forward_one_backward(int ranks, int micro_batches) {
  Schedule schedule;
  schedule.graph = chain_graph(ranks, micro_batches, 1, ChainPlacement::looped, costs_of(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Instruction>& program = schedule.programs.emplace_back();
    const int ahead = std::min(micro_batches, ranks - rank);
    for (int k = 0; k < micro_batches + ahead; ++k) {
      if (k >= ahead)
        program.push_back(compute(Op::backward, SegmentId(rank), MicroBatchId(k - ahead)));
      if (k < micro_batches)
        program.push_back(compute(Op::forward, SegmentId(rank), MicroBatchId(k)));
    }
  }
  return schedule;
}

Schedule interleaved(int ranks, int micro_batches, int chunks) {
  return find_generator("interleaved-1f1b").make(request(ranks, micro_batches, chunks));
}

void count_instructions(benchmark::State& state, const Schedule& schedule) {
  const auto count = static_cast<std::int64_t>(instruction_count(schedule));
  state.counters["instructions"] = static_cast<double>(count);
  state.SetItemsProcessed(state.iterations() * count);
}

void run_simulator(benchmark::State& state, const Schedule& schedule,
                   const SimulationOptions& options) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate(schedule, options));
  count_instructions(state, schedule);
}

SimulationOptions network_options(NetworkModel model) {
  SimulationOptions options;
  options.model = model;
  options.network.bandwidth = 1;
  return options;
}

/// Messages of a tenth of a forward.
Schedule lowered(Schedule schedule) {
  for (Edge& edge : schedule.graph.edges) edge.bytes = 1;
  return lower(schedule);
}

template <class Body>
void add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond);
}

void add_simulators(int ranks, int micro_batches, int chunks) {
  const std::string size = fmt::format("/p{}_m{}_v{}", ranks, micro_batches, chunks);
  const auto order = [=] {
    return chunks == 1 ? one_forward_one_backward(ranks, micro_batches)
                       : interleaved(ranks, micro_batches, chunks);
  };
  add("simulate_latency" + size,
      [=](benchmark::State& state) { run_simulator(state, order(), {}); });
  add("simulate_latency_lowered" + size,
      [=](benchmark::State& state) { run_simulator(state, lowered(order()), {}); });
  add("simulate_links" + size, [=](benchmark::State& state) {
    run_simulator(state, lowered(order()), network_options(NetworkModel::links));
  });
  add("simulate_links_shared_cards" + size, [=](benchmark::State& state) {
    SimulationOptions options = network_options(NetworkModel::links);
    options.network.card_bandwidth = 2;
    options.network.compute_slow_down = 1.25;
    for (int rank = 0; rank < ranks; ++rank) {
      options.network.card.push_back(rank / 2);
      options.network.node.push_back(rank / 4);
    }
    run_simulator(state, lowered(order()), options);
  });
  add("simulate_rendezvous" + size, [=](benchmark::State& state) {
    run_simulator(state, lowered(order()), network_options(NetworkModel::rendezvous));
  });
}

void add_passes(int ranks, int micro_batches, int chunks) {
  const std::string size = fmt::format("/p{}_m{}_v{}", ranks, micro_batches, chunks);
  add("lower" + size, [=](benchmark::State& state) {
    const Schedule schedule = interleaved(ranks, micro_batches, chunks);
    for (auto _ : state) benchmark::DoNotOptimize(lower(schedule));
    count_instructions(state, lower(schedule));
  });
  add("check_schedule" + size, [=](benchmark::State& state) {
    const Schedule schedule = lower(interleaved(ranks, micro_batches, chunks));
    for (auto _ : state) benchmark::DoNotOptimize(check_schedule(schedule));
    count_instructions(state, schedule);
  });
}

void add_search() {
  add("auto/p8_m32", [](benchmark::State& state) {
    ScheduleRequest uneven = request(8, 32, 1);
    for (int rank = 0; rank < 8; rank += 3) uneven.costs.forward[rank] *= 1.7;
    for (int rank = 1; rank < 8; rank += 2) uneven.costs.weight_gradient[rank] *= 0.6;
    uneven.memory_limit = 12;
    for (auto _ : state) benchmark::DoNotOptimize(find_generator("auto").make(uneven));
  });
}

void add_all() {
  add_simulators(8, 32, 1);
  for (const int micro_batches : {128, 512, 2048}) add_simulators(64, micro_batches, 1);
  for (const int micro_batches : {128, 256, 512}) {
    add_simulators(64, micro_batches, 4);
    add_passes(64, micro_batches, 4);
  }
  add_search();
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  heteroperf::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
