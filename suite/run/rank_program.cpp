// The life of a rank within one workload: bind to its CPUs, agree on a clock, measure the peak,
// train or search, measure the peak again, and say how it ended. Rank 0 has a service beside this
// that answers the messages of all ranks (rank_context.hpp); it stands before the first message
// and falls after the last.
//
// Every step of this order is collective. Where ranks could come to different opinions (whether a
// stop came in time, whether the search failed), one of them decides and the others hear it,
// because a rank that leaves alone would let its peers wait for good.
#include "suite/run/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "metrics/base/clock.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "suite/ranks/rank_session.hpp"
#include "suite/search/search_service.hpp"
#include "suite/training/group_trainer.hpp"
#include "suite/training/turn_taker.hpp"
#include "suite/watch/live_watch.hpp"
#include "suite/watch/peak_measurement.hpp"

namespace heteroperf {
namespace {

/// The nanoseconds to add to this rank's monotonic clock to get rank 0's. It is the best of several
/// round trips over the control channel: half of the shortest one bounds the error.
std::int64_t measure_clock_offset_ns(ControlChannel& control) {
  constexpr int round_trips = 8;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset = 0;
  for (int i = 0; i < round_trips; ++i) {
    const std::int64_t sent = now_ns();
    const std::int64_t theirs = ask_clock(control);
    const std::int64_t received = now_ns();
    // The true offset lies within half a round trip of this estimate; a shorter trip bounds it
    // better.
    if (received - sent < shortest) {
      shortest = received - sent;
      offset = theirs - (sent + (received - sent) / 2);
    }
  }
  return offset;
}

/// Begins rank 0's answers to every rank, from before the first message until all have nothing more
/// to say. `search` is made for a search, and `service` ends before it.
void begin_service(const PreparedRun& run, World& world, const FirstRank& first,
                   std::optional<SearchService>& search, std::optional<ServiceScope>& service) {
  // A disk that does not answer would hang rank 0 inside a write; then the run is given up from a
  // thread of its own.
  first.journal->watch_disk(run.config.comm.timeout_s,
                            [control = std::weak_ptr(world.control)](const Error& hanging) {
                              abandon_run(control, hanging);
                            });
  if (run.groups > 0) search.emplace(run.config, run.workload, run.groups, *first.journal);
  service.emplace(*world.control, answer_ranks(*first.journal, [&search, turns = first.turns](
                                                                   const std::string& question,
                                                                   ControlChannel::Reply reply) {
    if (turns != nullptr) return turns->answer(question, std::move(reply));
    search->answer(question, std::move(reply));
  }));
}

void warn(RankContext& context, const std::string& text) {
  fmt::print(stderr, "heteroperf: warning: {}\n", text);
  context.post(WarningEvent{text, ""});
}

/// Warns of more threads than cores and of a precision that cores do not have.
void warn_about_cores(const PreparedRun& run, RankContext& context) {
  if (!context.is_first() || context.gpu()) return;
  const Placement& placement = run.placement;
  const int cores = core_count(placement);
  // Ranks of a modelled timeline sleep most of the time and may be many.
  const bool emulated = run.plan && run.plan->emulated;
  if (!emulated && placement.ranks * placement.threads_per_rank > cores) {
    warn(context,
         fmt::format("{} ranks of {} take turns on {}: they are slower than fewer ranks "
                     "would be. Use --ranks {}",
                     placement.ranks, plural(placement.threads_per_rank, "thread"),
                     plural(cores, "core"), std::max(1, cores / placement.threads_per_rank)));
  }
  if (run.workload.precision != Precision::bf16) return;
  const double speedup = bf16_speedup(context.engine, placement.threads_per_rank);
  if (!(speedup > 1)) {
    warn(context, fmt::format("bf16 does not pay on this CPU, whose products of it run at {:.2f} "
                              "times the rate of float32's. Use --precision fp32",
                              speedup));
  }
}

/// The busiest rank's own share and the journal's, on all its threads.
void post_overhead(RankContext& context) {
  double busiest_s = context.measuring_s;
  context.all_ranks().all_reduce(std::span(&busiest_s, 1), Reduction::max);
  if (context.first.journal == nullptr) return;
  context.post(OverheadEvent{busiest_s + context.first.journal->cost_s()});
}

/// Agrees on how the workload ended, the same on every rank: a stop that came after the last step
/// counts too.
ProgramEnd agree_on_end(RankContext& context, const SearchService* search) {
  const bool stopped = stop_wanted(context);
  ProgramEnd end;
  if (search != nullptr) {
    const SearchEnd search_end = search->end();
    end = {false, search_end.kind == SearchEnd::Kind::failed, search_end.reason};
    if (!end.reason.empty()) end.reason = "the search ended: " + end.reason;
    if (search_end.kind == SearchEnd::Kind::early && !stopped) {
      context.post(WarningEvent{end.reason, ""});
    }
  }
  if (share_answer(context.all_ranks(), stopped)) {
    return {true, false, context.control().stop_requested().value_or("stop")};
  }
  end.failed = share_answer(context.all_ranks(), end.failed);
  return end;
}

/// Opens a watch of the GPU that this rank computes on; null without one.
std::unique_ptr<const GpuWatch> watch_gpu(const RankContext& context) {
  const std::optional<int> gpu = context.gpu();
  if (!gpu) return nullptr;
  const int rank = context.all_ranks().rank().value();
  return std::make_unique<const GpuWatch>(context.engine.cuda_devices().at(*gpu).pci_bus_id,
                                          context.placement.bindings[rank].host, rank);
}

/// All ranks over NCCL; null for other transports. Collective.
std::unique_ptr<Communicator> open_devices(const RunConfig& config, World& world) {
  if (config.scale.transport != Transport::nccl) return nullptr;
  const auto library = open_nccl_device(world);
  DeviceWorld devices = make_device_world(world, library, describe_rank(*world.communicator), {});
  HybridConfig hybrid;
  hybrid.staging.timeout_s = config.comm.timeout_s;
  return make_device_group(world, devices, std::move(hybrid));
}

/// Everything that this rank works with, and the first lines on it. Collective.
RankContext open_context(const PreparedRun& run, World& world, Engine& engine,
                         const FirstRank& first) {
  RankContext context{run.config, run.placement, world, engine, first};
  Communicator& all = context.all_ranks();
  context.devices = open_devices(run.config, world);
  // Only rank 0 hears of the gate.
  context.in_lockstep = share_answer(all, first.turns != nullptr);
  if (first.journal != nullptr) context.post(PhaseEvent{Phase::setup, std::nullopt});
  if (run.config.rank_logs || run.config.checkpoint.any()) {
    const std::string folder =
        first.journal != nullptr ? std::filesystem::absolute(first.folder).string() : "";
    context.run_folder = share_text(all, folder);
  }
  if (!run.config.rank_logs) return context;
  context.log_file.emplace(context.run_folder, all.rank().value());
  const RankBinding& binding = run.placement.bindings[all.rank().index()];
  context.log(fmt::format("{} {}, threads {}, cpus {}{}", run.workload.name, run.workload.size,
                          run.placement.threads_per_rank, to_list(binding.cpus),
                          binding.unbound.empty() ? "" : ", not bound: " + binding.unbound));
  return context;
}

/// Tells the journal of a device that does not compute as this host's best would.
void post_device(RankContext& context) {
  const RankDevice& device = context.device();
  if (!device.is_plain()) context.post(device_event(context.all_ranks().rank(), device));
}

/// Tells the journal what this rank's device lacked, and what that cost.
void post_substitutions(RankContext& context) {
  for (const auto& [name, count] : context.engine.substitutions()) {
    context.post(SubstitutionEvent{context.all_ranks().rank().value(), name, count.calls,
                                   count.bytes, count.seconds, context.steps_s});
  }
}

/// Binds this rank and brings its clock in line with rank 0's. Collective.
void set_up(const PreparedRun& run, RankContext& context) {
  const std::vector<CpuSet>& cpus = run.placement.cpus;
  if (!cpus.empty()) bind_this_thread(cpus[context.all_ranks().rank().index() % cpus.size()]);
  context.engine.use_device(context.device(), FallbackRules::parse(run.config.engine.fallback));
  post_device(context);
  context.all_ranks().barrier();
  if (context.first.journal == nullptr) {
    context.clock_offset_ns = measure_clock_offset_ns(context.control());
  }
  warn_about_cores(run, context);
}

}  // namespace

ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine,
                        const FirstRank& first) {
  std::optional<SearchService> search_service;
  std::optional<ServiceScope> service;
  if (first.journal != nullptr) begin_service(run, world, first, search_service, service);
  RankContext context = open_context(run, world, engine, first);
  try {
    set_up(run, context);
    // The set-up, with the peak in it, is watched apart from the training.
    LiveWatch watch(context, {});
    if (first.progress != nullptr) first.progress->say(course_text(run));
    const double mm_rate = measure_peak(context, run.workload.precision, PeakMoment::before_run);
    if (first.progress != nullptr) {
      for (const std::string& line : prediction_lines(run, mm_rate)) first.progress->say(line);
    }
    watch.begin(watch_gpu(context));
    context.show({.phase = "build", .note = "weights, data, operators"});
    SearchService* const search = search_service ? &*search_service : nullptr;
    if (run.groups > 0) {
      run_search(context, run.workload, search);
    } else {
      run_training(context, run.workload, *run.plan);
    }
    watch.close();
    post_substitutions(context);
    // Events of all ranks must be in the journal before the end is judged.
    ask_clock(context.control());
    const ProgramEnd end = agree_on_end(context, search);
    if (!end.interrupted && !end.failed) {
      measure_peak(context, run.workload.precision, PeakMoment::after_run);
    }
    post_overhead(context);
    context.log(end.reason.empty() ? "done" : "done: " + end.reason);
    return end;
  } catch (const std::exception& error) {
    context.log(std::string("ended by an error: ") + error.what());
    throw;
  }
}

}  // namespace heteroperf
