#include "suite/verbs/machine_load.hpp"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "suite/run/signals.hpp"

namespace heteroperf {
namespace {

constexpr double sample_s = 1;

/// Clock ticks of all cores outside idle and waiting for disks (proc(5), /proc/stat).
std::optional<double> busy_ticks() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (!(stat >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)) {
    return std::nullopt;
  }
  return user + nice + system + irq + softirq + steal;
}

}  // namespace

std::optional<double> busy_cores(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto before = busy_ticks();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const auto after = busy_ticks();
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  if (!before || !after || ticks_per_second <= 0) return std::nullopt;
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  return (*after - *before) / static_cast<double>(ticks_per_second) / elapsed;
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
