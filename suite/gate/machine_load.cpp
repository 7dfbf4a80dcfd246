// A gate on a busy machine measures its neighbours. Before it begins it looks for a second at how
// many of the usable cores were busy, and waits, a second at a time, until few enough are. It gives
// up after its patience and lets the caller decide; a stop signal ends the wait too.
#include "suite/gate/machine_load.hpp"

#include <chrono>
#include <thread>

#include "metrics/base/clock.hpp"
#include "suite/program/signals.hpp"
#include "suite/watch/host_load.hpp"

namespace heteroperf {
namespace {

constexpr double sample_s = 1;

}  // namespace

std::optional<double> busy_cores(double seconds) {
  const Stopwatch stopwatch;
  const CpuSet cpus = usable_cores().cpus;
  const auto before = read_host_counters(cpus).busy_s;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const auto after = read_host_counters(cpus).busy_s;
  if (!before || !after) return std::nullopt;
  const double elapsed = stopwatch.elapsed_s();
  return (*after - *before) / elapsed;
}

std::optional<double> wait_for_quiet(int cores, double share, double patience_s) {
  double waited_s = 0;
  while (true) {
    const auto busy = busy_cores(sample_s);
    waited_s += sample_s;
    if (!busy || *busy <= share * cores || waited_s >= patience_s || stop_signal() != nullptr) {
      return busy;
    }
  }
}

}  // namespace heteroperf
