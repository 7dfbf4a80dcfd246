// A line of progress may cost nothing, so most updates return at once: a terminal gets three lines
// a second at most, a log one every ten seconds. A new phase is shown at once, since it says that
// the last one is over. On a terminal the line is erased and rewritten; whoever prints something
// else calls finish() first, or the text would continue the line.
#include "suite/ranks/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "metrics/base/clock.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t terminal_period_ns = 300'000'000;
constexpr std::int64_t log_period_ns = 10'000'000'000;
constexpr double least_fraction = 0.01;

std::string line_of(const ProgressState& state) {
  std::string text;
  if (state.fraction >= least_fraction) {
    // The rest of the phase is assumed to go as its beginning did.
    const double rest_s = state.elapsed_s * (1 - state.fraction) / state.fraction;
    text += fmt::format(" {:3.0f} %  ETA {:.0f} s", 100 * state.fraction, std::max(0.0, rest_s));
  }
  if (state.units_per_second > 0) {
    text += fmt::format("  {:.0f} {}/s", state.units_per_second, state.unit);
  }
  // A state without steps has no loss yet.
  if (state.loss != 0) text += fmt::format("  loss {:.4f}", state.loss);
  if (!state.note.empty()) text += "  " + state.note;
  return text.empty() ? state.phase : fmt::format("{:<8}{}", state.phase, text);
}

}  // namespace

ProgressLine::ProgressLine(const GlobalOptions& options)
    : silent_(options.verbosity == Verbosity::quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { finish(); }

void ProgressLine::say(const std::string& text) {
  if (silent_) return;
  finish();
  fmt::print(stderr, "heteroperf: {}\n", text);
}

void ProgressLine::update(const ProgressState& state) {
  const std::int64_t now = now_ns();
  if (silent_ || (now < next_ns_ && state.phase == phase_)) return;
  phase_ = state.phase;
  next_ns_ = now + (terminal_ ? terminal_period_ns : log_period_ns);
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line_of(state), terminal_ ? "" : "\n");
  std::fflush(stderr);
  open_ = terminal_;
}

void ProgressLine::finish() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace heteroperf
