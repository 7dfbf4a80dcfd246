// Measures the memory bandwidth of a host with the *triad* of STREAM, a[i] = b[i] + s·c[i], 24
// bytes per element. All threads of all ranks of a host run it at the same time on arrays of their
// own.
//
// Only work in the *common interval* counts, from the moment at which the last thread begins to the
// one at which the first ends. In it the memory serves everybody; a thread that runs alone at
// either end would see more than its share, and a sum of such rates would exceed the bandwidth.
// Arrays are sized so that all of them together are four times the last-level caches, and each
// thread fills its own first, so that the pages lie on its NUMA node.
//
// A plan comes before the measurement: where threads share CPUs, or the arrays would not fit, a
// reason is told instead of a number that means something else.
#include "suite/watch/memory_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "results/text/number_text.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/cluster/topology.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t triad_arrays = 3, times_cache = 4, least_share_free = 4;
/// A thread fills them in a quarter of a second.
constexpr double most_bytes_per_thread = 640.0 * (1 << 20);

/// One thread's arrays. `fill` and `repeat` are its own: what a thread writes first lies near it.
class Triad {
 public:
  explicit Triad(std::size_t elements)
      : elements_(elements),
        a_(std::make_unique_for_overwrite<double[]>(elements)),
        b_(std::make_unique_for_overwrite<double[]>(elements)),
        c_(std::make_unique_for_overwrite<double[]>(elements)) {}

  void fill() {
    std::fill_n(a_.get(), elements_, 0.0);
    std::fill_n(b_.get(), elements_, 1.0);
    std::fill_n(c_.get(), elements_, 2.0);
  }
  void pass() {
    // The sign alternates and the arrays swap, so that a pass undoes the one before it and values
    // stay bounded.
    factor_ = -factor_;
    double* const a = a_.get();
    const double* const b = b_.get();
    const double* const c = c_.get();
    const double factor = factor_;
    for (std::size_t i = 0; i < elements_; ++i) a[i] = b[i] + factor * c[i];
    a_.swap(b_);  // the next pass needs this one
  }

 private:
  std::size_t elements_;
  std::unique_ptr<double[]> a_, b_, c_;
  double factor_ = 0.5;
};

/// The threads of a rank, of which the caller is one, from filling their arrays to the last pass.
class TriadTeam {
 public:
  /// All memory is asked for here, before there is another thread.
  TriadTeam(int threads, std::size_t elements) : filled_(threads - 1), logs_(threads) {
    for (int i = 0; i < threads; ++i) triads_.emplace_back(elements);
  }
  ~TriadTeam() {
    if (seconds_ == 0) go_.count_down();  // they have nothing to do
  }
  TriadTeam(const TriadTeam&) = delete;
  TriadTeam& operator=(const TriadTeam&) = delete;

  /// Starts the others and returns when all arrays are written.
  void fill() {
    for (std::size_t i = 1; i < triads_.size(); ++i) {
      others_.emplace_back([this, i] {
        triads_[i].fill();
        filled_.count_down();
        go_.wait();
        if (seconds_ > 0) repeat(i);
      });
    }
    triads_.front().fill();
    filled_.wait();
  }
  /// Once. `seconds` > 0. Throws std::bad_alloc where there is no memory for a log.
  std::vector<CallLog> run(double seconds) {
    seconds_ = seconds;
    go_.count_down();
    repeat(0);
    others_.clear();  // joins them
    if (out_of_memory_) throw std::bad_alloc();
    return std::move(logs_);
  }

 private:
  void repeat(std::size_t i) {
    try {
      logs_[i] = call_repeatedly([&triad = triads_[i]] { triad.pass(); }, seconds_);
    } catch (const std::bad_alloc&) {
      out_of_memory_ = true;
    }
  }

  std::vector<Triad> triads_;
  std::latch filled_, go_{1};
  std::vector<CallLog> logs_;
  double seconds_ = 0;  ///< written before `go_`
  std::atomic<bool> out_of_memory_{false};
  std::vector<std::jthread> others_;  // end first
};

/// Adds up what all ranks of a host have together.
TriadHost look_at_host(Communicator& host, const CpuSet& cpus, int threads) {
  std::set<int> usable;
  for (const std::string& text : gather_texts(host, to_list(cpus))) {
    const CpuSet of_rank = text.empty() ? CpuSet() : parse_cpu_list(text);
    usable.insert(of_rank.begin(), of_rank.end());
  }
  std::int64_t all_threads = threads;
  host.all_reduce(std::span(&all_threads, 1));
  // Ranks of a host could read slightly different free memory; one of them reads, so that all make
  // the same plan.
  std::array<std::int64_t, 3> facts{};
  if (host.rank() == RankId(0)) {
    const SystemFiles files;
    auto cores = static_cast<double>(usable.size());
    const Observed<double> quota = read_cgroup_limits(files).cores;
    if (quota) cores = std::min(cores, *quota);
    const Bytes free = available_memory(files).value.value_or(Bytes(0));
    facts = {static_cast<std::int64_t>(last_level_cache(probe_topology()).value()),
             static_cast<std::int64_t>(free.value()),
             std::max<std::int64_t>(1, static_cast<std::int64_t>(cores))};
  }
  host.broadcast(std::span(facts), RankId(0));
  return {Bytes(static_cast<std::uint64_t>(facts[0])), Bytes(static_cast<std::uint64_t>(facts[1])),
          static_cast<int>(all_threads), static_cast<int>(facts[2])};
}

constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::min();

}  // namespace

TriadPlan plan_triad(const TriadHost& host) {
  if (host.threads > host.cpus) {
    return {0,
            fmt::format("{} share {}", plural(host.threads, "thread"), plural(host.cpus, "CPU"))};
  }
  if (host.last_level_cache == Bytes(0)) return {0, "the last-level cache is not known"};
  if (host.available == Bytes(0)) return {0, "the free memory is not known"};
  const std::uint64_t bytes = times_cache * host.last_level_cache.value();
  const std::string needed = fmt::format("{} times the last-level cache, {},", times_cache,
                                         rounded_byte_size(Bytes(bytes)));
  if (bytes > host.available.value() / least_share_free) {
    return {0, fmt::format("{} is more than a quarter of the {} that are free", needed,
                           rounded_byte_size(host.available))};
  }
  const auto threads = static_cast<std::uint64_t>(host.threads);
  if (static_cast<double>(bytes) > most_bytes_per_thread * static_cast<double>(threads)) {
    return {0, fmt::format("{} is too much for {}: {} each at most", needed,
                           plural(threads, "thread"), rounded_byte_size(most_bytes_per_thread))};
  }
  const std::uint64_t per_element = triad_arrays * sizeof(double) * threads;
  return {static_cast<std::size_t>((bytes + per_element - 1) / per_element), ""};
}

MemoryRate measure_triad(Communicator& host, std::size_t elements, int threads, double seconds) {
  std::optional<TriadTeam> team;
  std::int64_t refused = 0;
  try {
    team.emplace(threads, elements);
    team->fill();
  } catch (const std::exception&) {  // bad_alloc, or a thread's system_error
    team.reset();
    refused = 1;
  }
  // A rank that was refused must tell the others before they wait for it in the next collective.
  host.all_reduce(std::span(&refused, 1));
  if (refused > 0) {
    return {std::nullopt,
            fmt::format("the system refused {} of {} ranks the arrays or threads for it", refused,
                        host.size())};
  }
  const std::vector<CallLog> logs = team->run(seconds);
  std::vector<TimeWindow> windows;
  for (const CallLog& log : logs) windows.push_back(log.window());
  const auto interval = common_interval(host, overlap_of(windows));
  if (!interval) return {std::nullopt, "its threads never ran at the same time"};
  double passes = 0;
  for (const CallLog& log : logs) passes += log.calls_in(*interval);
  const double bytes = passes * static_cast<double>(triad_arrays * sizeof(double) * elements);
  return {bytes / interval->seconds(), ""};
}

MemoryRate measure_memory_rate(Communicator& host, const CpuSet& cpus, int threads,
                               double seconds) {
  const TriadPlan plan = plan_triad(look_at_host(host, cpus, threads));
  if (!plan.reason.empty()) return {std::nullopt, plan.reason};
  return measure_triad(host, plan.elements, threads, seconds);
}

double CallLog::calls_in(const TimeWindow& interval) const {
  double calls = 0;
  std::int64_t begin_ns = start_ns;
  for (const std::int64_t end_ns : ends_ns) {
    const std::int64_t from_ns = std::max(begin_ns, interval.start_ns);
    const std::int64_t to_ns = std::min(end_ns, interval.end_ns);
    if (from_ns < to_ns) {
      calls += static_cast<double>(to_ns - from_ns) / static_cast<double>(end_ns - begin_ns);
    }
    begin_ns = end_ns;
  }
  return calls;
}

CallLog call_repeatedly(const std::function<void()>& call, double seconds,
                        const NanosecondClock& clock) {
  CallLog log{clock(), {}};
  const std::int64_t end_ns = log.start_ns + static_cast<std::int64_t>(seconds / nanosecond);
  do {
    call();
    log.ends_ns.push_back(clock());
  } while (log.ends_ns.back() < end_ns);
  return log;
}

TimeWindow overlap_of(std::span<const TimeWindow> windows) {
  TimeWindow common = windows.front();
  for (const TimeWindow& window : windows) {
    common.start_ns = std::max(common.start_ns, window.start_ns);
    common.end_ns = std::min(common.end_ns, window.end_ns);
  }
  return common;
}

// One reduction finds both ends: the latest start is a maximum, the earliest end the maximum of the
// negated ends. A rank without a window adds the smallest value to both.
std::optional<TimeWindow> common_interval(Communicator& group,
                                          const std::optional<TimeWindow>& window) {
  std::array<std::int64_t, 2> latest{never_ns, never_ns};  // start, and the end's opposite
  if (window) latest = {window->start_ns, -window->end_ns};
  group.all_reduce(std::span(latest), Reduction::max);
  if (latest[0] == never_ns || latest[0] >= -latest[1]) return std::nullopt;
  return TimeWindow{latest[0], -latest[1]};
}

}  // namespace heteroperf
