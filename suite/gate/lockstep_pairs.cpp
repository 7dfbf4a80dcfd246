// Compares two programs while both are alive. They train by *turns* of a few steps, a tenth of a
// second long, while the other one waits at a pipe; so both see the same machine within the same
// second, which whole runs one after another never do. Four turns make a *quad*,
// base-head-head-base or the mirrored order, drawn by chance; contrasts of its log times cancel a
// linear drift (metrics/turn_pairs.hpp). Quads of one pair of processes become one value with its
// error, because two processes keep the luck of their memory layout for life; a gate needs several
// pairs.
//
// Every turn is weighed by its disturbance: the share of time in which its threads waited for a
// core, or the share of all cores that anybody else used. Turns are written to
// turns.csv as they come, with everything that the weights are made of.
#include "suite/gate/lockstep_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "results/text/text_escapes.hpp"
#include "runners/cluster/system_files.hpp"
#include "suite/program/turn_protocol.hpp"
#include "suite/watch/host_load.hpp"

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// The wait for a program's first line: one that speaks the protocol says so before it loads
/// anything.
constexpr double hello_s = 30;
/// Short turns see the same machine: under another process that comes and goes every two seconds
/// turns of one step of 80 ms leave a third of the error of turns of two.
constexpr double turn_s = 0.1;
constexpr int most_steps = 4;
// The pair that is tried out moves this long at most.
constexpr double try_out_s = 2;
constexpr double memory_reserve = 1.1;
/// The kernel counts busy CPUs in ticks.
constexpr double tick_s = 0.01;

Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// As many steps as fill a turn, one at least and four at most.
int steps_for(double step_s) {
  return std::clamp(static_cast<int>(turn_s / step_s), 1, most_steps);
}

/// Mean of a turn's steps; the first one counts only where it is not slower than the next.
double mean_step_s(const std::vector<std::int64_t>& step_ns) {
  const std::size_t first = step_ns.size() > 1 && step_ns[0] > step_ns[1] ? 1 : 0;
  double sum = 0;
  for (std::size_t i = first; i < step_ns.size(); ++i) sum += static_cast<double>(step_ns[i]);
  return sum * nanosecond / static_cast<double>(step_ns.size() - first);
}

}  // namespace

/// One program of a pair: its process and its pipes.
class LockstepPairs::Side {
 public:
  Side(bool is_base, const std::string& pair, const GateCommands& commands, GateRuns& runs)
      : commands_(commands),
        runs_(runs),
        word_(is_base ? "the base" : "the head"),
        folder_(pair + (is_base ? "base" : "head")),
        address_{turn_protocol_version, patience_s,
                 fs::absolute(runs.make_home(folder_)) / "turns"},
        pipe_(TurnPipe::Side::gate, address_),
        run_(runs.begin(is_base ? "--base-cmd" : "--head-cmd",
                        is_base ? commands.base : commands.head, folder_,
                        {fmt::format("{}={}", TurnAddress::variable, address_.text())})) {}

  /// Until it is warm. Throws LockstepRefused where it does not take part.
  TurnReady await_ready() {
    std::string line = hello();
    heed_refusal(line);
    if (line != fmt::format("turns {}", turn_protocol_version)) {
      if (!line.starts_with("turns ")) throw_garbage(line, "'turns N'");
      throw LockstepRefused(fmt::format("{} speaks version {} of lockstep, this gate {}", word_,
                                        utf8_text(line.substr(6)), turn_protocol_version));
    }
    line = next_line(Clock::time_point::max());
    heed_refusal(line);
    const auto ready = parse_ready(line);
    if (!ready) throw_garbage(line, "'ready …'");
    require_own_folder(ready->folder);
    return *ready;
  }

  TurnDone take_turn(int steps) {
    pipe_.send(fmt::format("steps {}", steps));
    const std::string line = next_line(after(commands_.turn_timeout_s));
    const auto done = parse_done(line);
    if (!done) throw_garbage(line, "'done …'");
    if (done->step_ns.size() != static_cast<std::size_t>(steps)) {
      throw Error(ErrorKind::run_failed, {{fmt::format("{} did {} steps in a turn of {}",
                                                       run_.name(), done->step_ns.size(), steps),
                                           "in lockstep both programs do the same steps", ""}});
    }
    idle_cpu_s += static_cast<double>(done->idle_cpu_ns) * nanosecond;
    return *done;
  }

  void end() { pipe_.send("end"); }
  RunDigest finish() { return runs_.finish(run_); }

  double idle_cpu_s = 0, idle_s = 0;  ///< while the other program moved

 private:
  static constexpr double patience_s = 86400;  // the gate's own deadlines come first

  void heed_refusal(const std::string& line) const {
    if (line.starts_with("refused ")) throw LockstepRefused(word_ + ": " + line.substr(8));
  }

  TurnPipe::Received receive(Clock::time_point deadline) {
    return pipe_.receive(deadline, [this] { return run_.process->poll() != nullptr; });
  }

  std::string hello() {
    const auto received = receive(after(hello_s));
    if (received.event == TurnPipe::Event::line) return received.line;
    if (received.event == TurnPipe::Event::gave_up) throw_ended_early();
    throw LockstepRefused(
        fmt::format("{} did not say within {:g} s that it knows lockstep", word_, hello_s));
  }

  [[noreturn]] void throw_ended_early() {
    const CommandOutcome& outcome = run_.process->wait();
    if (outcome.end != CommandEnd::exited) runs_.check(run_, outcome);
    throw LockstepRefused(fmt::format("{} ended before its first turn (exit code {}, {})", word_,
                                      outcome.exit_code, last_words(run_.command.err, outcome)));
  }

  std::string next_line(Clock::time_point deadline) {
    const auto received = receive(deadline);
    if (received.event == TurnPipe::Event::line) return received.line;
    if (received.event == TurnPipe::Event::timed_out) {
      throw Error(ErrorKind::timeout,
                  {{fmt::format("a turn of {} did not end within {:g} s", run_.name(),
                                commands_.turn_timeout_s),
                    last_words(run_.command.err, {}), "Give --turn-timeout more seconds."}});
    }
    if (!is_warm_) throw_ended_early();
    const CommandOutcome& outcome = run_.process->wait();
    runs_.check(run_, outcome);
    throw Error(ErrorKind::run_failed,
                {{fmt::format("{} ended between two turns, with exit code {}", run_.name(),
                              outcome.exit_code),
                  last_words(run_.command.err, outcome), "See " + run_.command.err.string()}});
  }

  void require_own_folder(const std::string& folder) {
    is_warm_ = true;
    std::error_code none;
    if (fs::weakly_canonical(folder, none) == fs::weakly_canonical(run_.run_folder())) return;
    throw UserError(fmt::format("{} writes into {}", run_.name(), utf8_text(folder)),
                    "in lockstep both programs are alive at once, each in a folder of its own",
                    "Leave --out out of the command: the gate sets HETEROPERF_OUT.");
  }

  [[noreturn]] void throw_garbage(const std::string& line, const std::string& wanted) {
    constexpr std::size_t longest = 80;
    throw Error(
        ErrorKind::run_failed,
        {{fmt::format("{} said '{}' to the gate", run_.name(), utf8_text(line.substr(0, longest))),
          fmt::format("{} is wanted by version {} of lockstep", wanted, turn_protocol_version),
          ""}});
  }

  const GateCommands& commands_;
  GateRuns& runs_;
  std::string word_, folder_;  ///< "the head"; below the gate's own
  TurnAddress address_;
  TurnPipe pipe_;
  BegunRun run_;
  bool is_warm_ = false;
};

LockstepPairs::LockstepPairs(const GateCommands& commands, GateRuns& runs)
    : commands_(commands), runs_(runs), random_(commands.seed), cpus_(usable_cores().cpus) {
  log_.open(commands_.out / "turns.csv");
  log_ << "pair,quad,turn,side,load,wait_s,cpu_s,other_s,idle_cpu_s,turn_s,step_s\n";
}

LockstepPair LockstepPairs::try_out(const std::string& folder) {
  Side base(true, folder, commands_, runs_);
  const TurnReady base_ready = base.await_ready();
  const auto left = available_memory(SystemFiles());
  const auto peak_bytes = static_cast<double>(base_ready.peak_bytes);
  if (left && static_cast<double>((*left).value()) < memory_reserve * peak_bytes) {
    throw LockstepRefused(fmt::format(
        "memory for one program only: the base takes {:.1f} GiB, {:.1f} GiB are left beside it",
        peak_bytes / (1 << 30), static_cast<double>((*left).value()) / (1 << 30)));
  }
  Side head(false, folder, commands_, runs_);
  const TurnReady head_ready = head.await_ready();
  // The steps of a warm-up tell little: a program alone at that moment, on a cold cache. Two steps
  // each are taken here; the slower program decides the length of a turn.
  const TurnDone base_turn = base.take_turn(2), head_turn = head.take_turn(2);
  steps_per_turn_ =
      steps_for(std::max(mean_step_s(base_turn.step_ns), mean_step_s(head_turn.step_ns)));
  return move_by_turns(base, head, std::min(try_out_s, commands_.pair_s));
}

LockstepPair LockstepPairs::run(const std::string& folder) {
  ++pair_;
  // The process that starts first may get the better memory, so chance decides.
  const bool base_first = toss();
  std::optional<Side> base, head;
  for (const bool is_base : {base_first, !base_first}) {
    (is_base ? base : head).emplace(is_base, folder, commands_, runs_);
  }
  try {
    base->await_ready();
    head->await_ready();
    // A refusal now is a failure: pairs that were measured cannot be mixed with blocks.
  } catch (const LockstepRefused& refused) {
    throw Error(ErrorKind::run_failed, {{refused.what(), "it took part in lockstep before", ""}});
  }
  return move_by_turns(*base, *head, commands_.pair_s);
}

LockstepPair LockstepPairs::move_by_turns(Side& base, Side& head, double seconds) {
  std::vector<TurnQuad> quads;
  quad_ = 0;
  run_quad(base, head);  // does not count: caches, clocks and predictors settle
  const auto end = after(seconds);
  while (quads.size() < fewest_quads || Clock::now() < end) {
    ++quad_;
    quads.push_back(run_quad(base, head));
  }
  base.end();
  head.end();
  log_.flush();
  // The pair that is tried out, number 0, does not count here.
  for (const Side* side : {&base, &head}) {
    if (pair_ > 0 && side->idle_s > 0) {
      idle_cpu_share_ = std::max(idle_cpu_share_, side->idle_cpu_s / side->idle_s);
    }
  }
  return {base.finish(), head.finish(), summarize_pair(quads)};
}

TurnQuad LockstepPairs::run_quad(Side& base, Side& head) {
  TurnQuad quad;
  quad.base_first = toss();
  for (std::size_t i = 0; i < quad.turns.size(); ++i) {
    // Turns 0 and 3 belong to one program, 1 and 2 to the other.
    const bool is_base = (i == 0 || i == 3) == quad.base_first;
    const auto busy_before = read_host_counters(cpus_).busy_s;
    const Stopwatch stopwatch;
    const TurnDone done = (is_base ? base : head).take_turn(steps_per_turn_);
    const double seconds = stopwatch.elapsed_s();
    const auto busy_after = read_host_counters(cpus_).busy_s;
    (is_base ? head : base).idle_s += seconds;
    const double cpu_s = static_cast<double>(done.cpu_ns) * nanosecond;
    const double wait_s = static_cast<double>(done.wait_ns) * nanosecond;
    const double cores = static_cast<double>(cpus_.size());
    double other_s = 0;
    if (busy_before && busy_after) {
      // Two readings in ticks may be off by one tick per core.
      other_s = std::max(0.0, *busy_after - *busy_before - cpu_s - cores * tick_s);
    }
    Turn& turn = quad.turns[i];
    turn.step_s = mean_step_s(done.step_ns);
    const double waiting = wait_s > 0 ? wait_s / (wait_s + cpu_s) : 0;
    turn.load = std::max(waiting, other_s / (cores * seconds));
    log_ << fmt::format("{},{},{},{},{:.4f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.9f}\n", pair_,
                        quad_, i, is_base ? "base" : "head", turn.load, wait_s, cpu_s, other_s,
                        static_cast<double>(done.idle_cpu_ns) * nanosecond, seconds, turn.step_s);
  }
  return quad;
}

}  // namespace heteroperf
