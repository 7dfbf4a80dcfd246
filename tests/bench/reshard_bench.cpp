// How long plans take: `reshard_bench --benchmark_min_time=0.2`.

#include <benchmark/benchmark.h>

#include <numeric>
#include <random>

#include "runners/comm/reshard/freight.hpp"
#include "runners/comm/reshard/rank_program.hpp"
#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {
namespace {

std::vector<RankId> rank_range(int first, int count) {
  std::vector<RankId> ranks;
  for (int i = 0; i < count; ++i) ranks.emplace_back(first + i);
  return ranks;
}

/// Activations (micro-batch, sequence, width) between two groups of ranks: a side is batch ×
/// sequence × width parts, times replicas.
struct Side {
  int batch, sequence, width, replicas;
  int ranks() const { return batch * sequence * width * replicas; }
};

/// Cuts the dimensions evenly into `parts`; tile after tile on the next `replicas` ranks.
Layout grid(const Layout::Shape& shape, const std::vector<int>& parts, int first_rank,
            int replicas) {
  std::vector<std::vector<std::int64_t>> boundaries;
  std::vector<std::vector<RankId>> holders(1);
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    boundaries.emplace_back();
    for (int i = 0; i <= parts[dim]; ++i) {
      boundaries.back().push_back(shape[dim] * i / parts[dim]);
    }
    holders.resize(holders.size() * static_cast<std::size_t>(parts[dim]));
  }
  for (std::size_t tile = 0; tile < holders.size(); ++tile) {
    holders[tile] = rank_range(first_rank + static_cast<int>(tile) * replicas, replicas);
  }
  return Layout(shape, std::move(boundaries), std::move(holders));
}

Layout layout_of(const Side& side, int first_rank) {
  return grid({960, 8192, 4096}, {side.batch, side.sequence, side.width}, first_rank,
              side.replicas);
}

ReshardConfig bf16_config() {
  ReshardConfig config;
  config.type = DataType::bf16;
  return config;
}

void report(benchmark::State& state, const ReshardPlan& plan) {
  state.counters["messages"] = static_cast<double>(plan.messages.size());
  state.counters["pieces"] = static_cast<double>(plan.pieces.size());
  state.counters["rounds"] = std::accumulate(plan.rounds.begin(), plan.rounds.end(), 0);
  Bytes moved(0);
  for (const ReshardMessage& message : plan.messages) moved += message.size;
  state.counters["moved_per_element"] =
      static_cast<double>(moved.value()) / (2.0 * static_cast<double>(plan.from.count()));
}

void plan_between(benchmark::State& state, Side from, Side to, GradientKind kind) {
  const Layout source = layout_of(from, 0), target = layout_of(to, from.ranks());
  const ReshardConfig config = bf16_config();
  ReshardPlan plan;
  for (auto _ : state) {
    plan = kind == GradientKind::partial ? plan_sum(source, target, config)
                                         : plan_reshard(source, target, config);
    benchmark::DoNotOptimize(plan);
  }
  report(state, plan);
}

void compile_rank(benchmark::State& state, Side from, Side to) {
  const ReshardPlan plan =
      plan_reshard(layout_of(from, 0), layout_of(to, from.ranks()), bf16_config());
  for (auto _ : state) benchmark::DoNotOptimize(RankProgram(plan, RankId(from.ranks())));
}

void rounds_of_everybody(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  std::vector<std::pair<RankId, RankId>> messages;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) messages.emplace_back(RankId(from), RankId(to));
  for (auto _ : state) benchmark::DoNotOptimize(message_rounds(messages));
}

void rounds_of_random_pairs(benchmark::State& state) {
  std::mt19937 engine(1);
  std::vector<std::pair<RankId, RankId>> messages;
  for (std::int64_t i = 0; i < state.range(0); ++i)
    messages.emplace_back(RankId(static_cast<int>(engine() % 1024)),
                          RankId(static_cast<int>(engine() % 768)));
  for (auto _ : state) benchmark::DoNotOptimize(message_rounds(messages));
}

/// From rows to columns: everybody sends to everybody.
void plan_rows_to_columns(benchmark::State& state) {
  const int from = static_cast<int>(state.range(0)), to = static_cast<int>(state.range(1));
  const Layout source = grid({8192, 8192}, {from, 1}, 0, 1);
  const Layout target = grid({8192, 8192}, {1, to}, from, 1);
  ReshardPlan plan;
  for (auto _ : state) {
    plan = plan_reshard(source, target, {});
    benchmark::DoNotOptimize(plan);
  }
  report(state, plan);
}

/// A quarter of the columns of a matrix: runs of `state.range(0)` bytes.
void pack_columns(benchmark::State& state) {
  const auto run = static_cast<std::size_t>(state.range(0)), rows = (std::size_t{4} << 20) / run;
  BoxCopy copy;
  copy.run = run;
  copy.loops = 1;
  copy.loop[0] = {rows, 4 * run, run};
  std::vector<std::byte> source(4 * rows * run), target(rows * run);
  for (auto _ : state) {
    copy_box(copy, source.data(), target.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * target.size()));
}

constexpr Side from_64{4, 4, 4, 1}, to_48{6, 2, 4, 1};
constexpr Side from_64_copies{4, 2, 2, 4}, to_48_copies{3, 2, 2, 4};
constexpr Side from_1024{16, 8, 8, 1}, to_768{12, 8, 8, 1};
constexpr Side from_1024_copies{16, 2, 4, 8}, to_768_copies{12, 4, 2, 8};

BENCHMARK_CAPTURE(plan_between, 64_to_48, from_64, to_48, GradientKind::replicate);
BENCHMARK_CAPTURE(plan_between, 64_to_48_copies, from_64_copies, to_48_copies,
                  GradientKind::replicate);
BENCHMARK_CAPTURE(plan_between, 64_to_48_sums, from_64_copies, to_48_copies, GradientKind::partial);
BENCHMARK_CAPTURE(plan_between, 1024_to_768, from_1024, to_768, GradientKind::replicate);
BENCHMARK_CAPTURE(plan_between, 1024_to_768_copies, from_1024_copies, to_768_copies,
                  GradientKind::replicate);
BENCHMARK_CAPTURE(plan_between, 1024_to_768_sums, from_1024_copies, to_768_copies,
                  GradientKind::partial);
BENCHMARK_CAPTURE(compile_rank, 1024_to_768_copies, from_1024_copies, to_768_copies);
BENCHMARK(plan_rows_to_columns)->Args({64, 48})->Args({1024, 768});
BENCHMARK(rounds_of_everybody)->Arg(64)->Arg(512);
BENCHMARK(rounds_of_random_pairs)->Arg(10000)->Arg(100000);
BENCHMARK(pack_columns)->Arg(4)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace heteroperf

BENCHMARK_MAIN();
