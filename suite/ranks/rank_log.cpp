// A log of one rank for people who look for the rank that hangs. Lines are flushed at once, so that
// the last one is on the disk when the process dies. It repeats events of the journal in words, but
// not those of every step. A log that cannot be written ends with one warning, because the journal
// is what counts.
#include "suite/ranks/rank_log.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t step_period_ns = 10'000'000'000;

/// The words of an event in a log; an empty text leaves it out.
struct EventWording {
  std::string operator()(const PhaseEvent& e) const {
    return e.group ? fmt::format("phase {} of group {}", to_string(e.phase), *e.group)
                   : fmt::format("phase {}", to_string(e.phase));
  }
  std::string operator()(const WarningEvent& e) const { return "warning: " + e.text; }
  std::string operator()(const EvalEvent& e) const {
    return fmt::format("{}evaluation on {} samples: loss {:.4f}, accuracy {:.4f}",
                       e.is_final.value_or(false) ? "final " : "", e.samples, e.loss, e.accuracy);
  }
  std::string operator()(const ObservedEvent& e) const {
    return fmt::format("step {} observed: {} operations executed, {} counted", e.n,
                       e.executed.to_string(), (e.strict + e.recompute).to_string());
  }
  std::string operator()(const ChecksumEvent& e) const {
    return fmt::format("parameters after {} steps: {}", e.n, e.fingerprint);
  }
  std::string operator()(const CheckpointEvent& e) const {
    return fmt::format("checkpoint after {} steps: {} bytes in {:.3f} s", e.n, e.bytes, e.seconds);
  }
  std::string operator()(const MemoryEvent& e) const {
    return fmt::format("peak memory {} bytes", e.peak_bytes);
  }
  std::string operator()(const auto&) const { return {}; }
};

}  // namespace

RankLog::RankLog(const std::filesystem::path& folder, int rank)
    : path_(folder / fmt::format("rank-{}.log", rank)), start_ns_(now_ns()) {
  std::error_code ignored;  // opening the file tells
  std::filesystem::create_directories(folder, ignored);
  // A stream does not promise to set it.
  errno = 0;
  file_.open(path_);
  if (!file_) {
    throw SystemError("cannot write " + path_.string(), std::strerror(errno),
                      "Leave out --rank-logs", ErrorKind::environment);
  }
  write(fmt::format("{:%Y-%m-%dT%H:%M:%SZ} rank {} on {}, process {}",
                    fmt::gmtime(std::time(nullptr)), rank, host_name(), getpid()));
}

void RankLog::write(const std::string& text) {
  if (broken_) return;
  file_ << fmt::format("{:10.3f} s  {}\n", static_cast<double>(now_ns() - start_ns_) * 1e-9, text)
        << std::flush;
  if (file_) return;
  broken_ = true;
  fmt::print(stderr, "heteroperf: warning: cannot write {}; the log ends here\n", path_.string());
}

void RankLog::note(const Event& event) {
  const std::string text = std::visit(EventWording{}, event);
  if (!text.empty()) write(text);
}

void RankLog::step(std::uint64_t n, double loss) {
  const std::int64_t now = now_ns();
  // Step 0 of every model is written, so that a trial of a search shows.
  if (n > 0 && now < next_step_ns_) return;
  next_step_ns_ = now + step_period_ns;
  write(fmt::format("step {}, loss {:.4f}", n, loss));
}

}  // namespace heteroperf
