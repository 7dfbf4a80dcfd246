// A rank that waits for a message for a long time looks like one that computes. The watchdog's
// thread looks a few times per timeout at the instruction that the rank noted last and says on
// stderr where the rank is, once per instruction. The rank itself pays two stores per instruction.
#include "runners/engine/pipeline/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "metrics/base/clock.hpp"
#include "runners/engine/pipeline/step_clock.hpp"

namespace heteroperf {

Watchdog::Watchdog(double timeout_s, std::function<std::string(std::int64_t)> describe)
    : timeout_s_(timeout_s),
      describe_(std::move(describe)),
      thread_([this](const std::stop_token& end) { watch(end); }) {}

void Watchdog::at(std::int64_t instruction) {
  since_ns_.store(now_ns(), std::memory_order_relaxed);
  instruction_.store(instruction, std::memory_order_relaxed);
}

// An instruction is named once, however long it lasts.
void Watchdog::watch(const std::stop_token& end) {
  std::int64_t spoken_ns = 0;  // start of the instruction that was told of
  const std::chrono::duration<double> period(std::clamp(timeout_s_ / 4, 0.01, 1.0));
  std::mutex mutex;
  std::condition_variable_any ending;
  std::unique_lock lock(mutex);
  while (!ending.wait_for(lock, end, period, [&] { return end.stop_requested(); })) {
    const std::int64_t instruction = instruction_.load(), since_ns = since_ns_.load();
    const double waited_s = static_cast<double>(now_ns() - since_ns) * 1e-9;
    if (instruction < 0 || waited_s < timeout_s_ || since_ns == spoken_ns) continue;
    spoken_ns = since_ns;
    fmt::print(stderr, "heteroperf: {} for {:.1f} s\n", describe_(instruction), waited_s);
  }
}

}  // namespace heteroperf
