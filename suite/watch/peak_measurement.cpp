// The *peak* of a run is the rate of the fastest matrix product that its machine reaches:
// utilization in the record is relative to it. Each rank tries the products of its engine for half
// of `measure.peak_s` and keeps the fastest, then all repeat theirs for the other half at the same
// time, between two barriers. The rate that counts is the work inside the interval in which all of
// them ran (memory_rate.hpp), so shared caches, memory and clocks limit it as they limit training.
//
// `other_load` says how far the number can be trusted: the share of the CPUs that other programs
// had meanwhile, or the share of the time in which a measuring thread had no CPU, whichever is
// worst on any rank.
#include "suite/watch/peak_measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "runners/comm/communicator.hpp"
#include "suite/watch/hosts_watch.hpp"
#include "suite/watch/memory_rate.hpp"

namespace heteroperf {
namespace {

/// The share of one rank, which works beside the others.
struct RankPeak {
  FastestProduct product;
  CallLog calls;
  double waited = 0;  ///< share of the time in which its thread had no CPU
};

/// Half of the seconds finds the fastest product, half repeats it. Collective, also where this rank
/// does not take part.
std::optional<RankPeak> measure_rank(RankContext& context, Precision precision) {
  const bool takes_part =
      context.gpu() || measures_cpus(context.placement, context.all_ranks().rank().value());
  const double seconds = context.config.measure.peak_s / 2;
  std::optional<RankPeak> peak;
  context.all_ranks().barrier();
  if (takes_part) {
    peak.emplace().product =
        context.gpu() ? context.engine.find_fastest_cuda_product(precision, *context.gpu(), seconds)
                      : context.engine.find_fastest_product(
                            precision, context.placement.threads_per_rank, seconds);
  }
  context.all_ranks().barrier();
  if (!takes_part) return peak;
  const double before_s = thread_cpu_s();
  peak->calls = call_repeatedly(peak->product.multiply, seconds);
  const double busy_s = thread_cpu_s() - before_s;
  // Whoever computes on a GPU waits for it.
  if (!context.gpu()) peak->waited = std::max(0.0, 1 - busy_s / peak->calls.window().seconds());
  return peak;
}

/// Operations of this rank per second of the interval in which all worked; 0 without one.
double share_of_rate(const std::optional<RankPeak>& peak, RankContext& context) {
  std::optional<TimeWindow> window;
  const std::int64_t offset_ns = context.clock_offset_ns;
  if (peak) {
    const TimeWindow time_window = peak->calls.window();
    window = TimeWindow{time_window.start_ns + offset_ns, time_window.end_ns + offset_ns};
  }
  const auto common = common_interval(context.all_ranks(), window);
  if (!common || !peak) return 0;
  const TimeWindow here{common->start_ns - offset_ns, common->end_ns - offset_ns};
  return peak->calls.calls_in(here) * peak->product.operations / here.seconds();
}

/// The products of all ranks, each once. Collective.
std::vector<std::string> names_of(const std::optional<RankPeak>& peak, Communicator& all) {
  const auto texts = gather_texts(all, peak ? peak->product.name : "");
  std::set<std::string> names(texts.begin(), texts.end());
  names.erase("");
  return {names.begin(), names.end()};
}

/// Measures the rate of the hosts' memory, by way of all ranks. Collective.
void measure_memory(RankContext& context, PeakEvent& event) {
  Communicator& all = context.all_ranks();
  // The triad runs on CPUs; where a rank trains on a GPU, the hosts' memory bounds nothing.
  double gpus = context.gpu() ? 1 : 0;
  all.all_reduce(std::span(&gpus, 1));
  if (gpus > 0) {
    event.memory_reason = "ranks compute in the memory of GPUs";
    return;
  }
  const auto& bindings = context.placement.bindings;
  const std::size_t own_rank = all.rank().index();
  // Ranks of one host form a group, named by the first of them.
  const auto host =
      all.split(static_cast<int>(first_beside(bindings, own_rank)), static_cast<int>(own_rank));
  const MemoryRate memory =
      measure_memory_rate(*host, bindings[own_rank].cpus, context.placement.threads_per_rank,
                          context.config.measure.peak_s / 2);
  const std::vector<std::string> reasons = gather_texts(all, memory.reason);
  double rate = memory.bytes_per_second.value_or(0);
  // One host without a number makes the sum meaningless: its reason is told instead.
  all.all_reduce(std::span(&rate, 1));
  const auto told = [](const std::string& reason) { return !reason.empty(); };
  const auto first = std::find_if(reasons.begin(), reasons.end(), told);
  if (first == reasons.end()) {
    event.memory_bytes_per_second = rate;
  } else {
    const auto rank = static_cast<std::size_t>(first - reasons.begin());
    event.memory_reason = bindings[rank].host + ": " + *first;
  }
}

}  // namespace

double measure_peak(RankContext& context, Precision precision, PeakMoment moment) {
  const double seconds = context.config.measure.peak_s;
  if (seconds <= 0 || context.in_lockstep) return 0;
  const bool before = moment == PeakMoment::before_run;
  context.show({.phase = before ? "set-up" : "finish",
                .note = before ? fmt::format("peak rate and memory, {:.1f} s", 1.5 * seconds)
                               : fmt::format("peak rate, {:.1f} s", seconds)});
  Communicator& all = context.all_ranks();
  HostsWatch hosts(all, context.placement.bindings);
  const std::optional<RankPeak> peak = measure_rank(context, precision);
  // The share of the CPUs of this rank's host that others had; below 0: the kernel does not tell.
  const auto others = hosts.until_now();
  double load =
      others && others->cpus > 0 ? others->other_cpus / static_cast<double>(others->cpus) : -1;
  if (peak && !context.gpu()) load = std::max(load, peak->waited);
  all.all_reduce(std::span(&load, 1), Reduction::max);
  std::array<double, 2> rates{share_of_rate(peak, context),
                              peak ? peak->product.mm_ops_per_second : 0};
  all.all_reduce(std::span(rates));
  PeakEvent event{rates[0], to_string(precision)};
  event.mm_ops_per_second = rates[1];
  event.products = names_of(peak, all);
  if (peak) event.tried = peak->product.tried;
  if (load >= 0) event.other_load = load;
  if (before) measure_memory(context, event);
  if (context.is_first()) context.post(event);
  return rates[1];
}

double peak_of_all(RankContext& context, Precision precision) {
  double rate = share_of_rate(measure_rank(context, precision), context);
  context.all_ranks().all_reduce(std::span(&rate, 1));
  return rate;
}

}  // namespace heteroperf
