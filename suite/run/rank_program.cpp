#include "suite/run/rank_program.hpp"

#include <fmt/format.h>

#include <optional>

#include "runners/cluster/cpu_set.hpp"
#include "suite/run/clock.hpp"
#include "suite/run/rank_messages.hpp"
#include "suite/run/search_program.hpp"
#include "suite/run/training_program.hpp"

namespace heteroperf {
namespace {

/// Rank 0's answers to every rank, from before the first message until all have nothing more to
/// say.
class FirstRankService {
 public:
  FirstRankService(const PreparedRun& run, World& world, JournalWriter& journal) {
    if (run.groups > 0) search_.emplace(run.config, run.workload, run.groups, journal);
    RankMessageHandlers handlers;
    handlers.on_event = [&journal](const Event& event) { journal.append(event); };
    handlers.on_question = [this](RankId, const std::string& question,
                                  ControlChannel::Reply reply) {
      search_->answer(question, std::move(reply));
    };
    scope_.emplace(*world.control, route_messages(std::move(handlers)));
  }

  SearchService* search() { return search_ ? &*search_ : nullptr; }

 private:
  std::optional<SearchService> search_;
  std::optional<ServiceScope> scope_;  // ends before what its handlers refer to
};

void bind(const Placement& placement, int rank) {
  if (placement.cpus.empty()) return;
  bind_this_thread(placement.cpus[static_cast<std::size_t>(rank) % placement.cpus.size()]);
}

/// All ranks at once, as in training: cores share caches, memory and clock.
void measure_peak(const PreparedRun& run, RankContext& context) {
  if (run.config.measure.peak_s <= 0) return;
  context.all_ranks().barrier();
  double rate = context.engine.measure_peak_ops_per_second(
      run.workload.precision, run.placement.threads_per_rank, run.config.measure.peak_s);
  context.all_ranks().all_reduce(std::span(&rate, 1));
  if (context.is_first()) {
    context.post(PeakEvent{rate, to_string(run.workload.precision), "measured"});
  }
}

void warn_about_bf16(const PreparedRun& run, RankContext& context) {
  if (!context.is_first() || run.workload.precision != Precision::bf16 ||
      context.engine.has_native_bf16()) {
    return;
  }
  const std::string text =
      "bf16 runs without native support on this CPU (no AVX-512 BF16 or AMX): expect it to be slow";
  fmt::print(stderr, "heteroperf: warning: {}\n", text);
  context.post(WarningEvent{text, ""});
}

/// The busiest rank's own share and the journal's, on all its threads.
void post_overhead(RankContext& context) {
  double busiest_s = context.measuring_s;
  context.all_ranks().all_reduce(std::span(&busiest_s, 1), Reduction::max);
  if (context.journal == nullptr) return;
  context.post(OverheadEvent{busiest_s + context.journal->cost_s()});
}

}  // namespace

ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine, FirstRank first) {
  std::optional<FirstRankService> service;
  if (first.recorder != nullptr) service.emplace(run, world, first.recorder->journal());
  RankContext context{run.config, run.placement, world, engine};
  if (first.recorder != nullptr) {
    context.progress = first.progress;
    context.journal = &first.recorder->journal();
    context.post(PhaseEvent{Phase::setup, std::nullopt});
  }
  bind(run.placement, context.all_ranks().rank().value());
  context.all_ranks().barrier();
  context.clock_offset_ns = context.is_first() ? 0 : measure_clock_offset_ns(*world.control);
  warn_about_bf16(run, context);
  measure_peak(run, context);
  const ProgramEnd end =
      run.groups > 0 ? run_search(context, run.workload, service ? service->search() : nullptr)
                     : run_training(context, run.workload);
  flush_events(*world.control);
  post_overhead(context);
  return end;
}

}  // namespace heteroperf
