// The course of a gate with commands. A warm-up of both sides does not count: it fills caches and
// shows whether the two are comparable at all. Then *blocks* follow, base, head, head, base, in
// which a drift of the machine falls on both sides alike; or *pairs* of processes in lockstep.
// After each block the verdict is asked for, and the gate ends when it is settled or the rules
// allow no more blocks.
//
// Looking after every block is a sequential test, so the rules are told how often they are asked
// (GateLooks). A regression in an exact metric needs no statistics: where it shows in every run of
// the head, it ends the gate at once. An error on the way does not throw the blocks before it away;
// the report has their verdict beside the error. Where a program cannot be moved in lockstep, the
// same gate runs in blocks and says so.
#include "suite/gate/gate_session.hpp"

#include <fmt/format.h>

#include <optional>

#include "metrics/base/error.hpp"
#include "results/gate/gate_report.hpp"
#include "suite/gate/lockstep_pairs.hpp"

namespace heteroperf {
namespace {

/// The runs of one gate so far, and what they say.
class GateSession {
 public:
  GateSession(const GateCommands& commands, const GateRules& rules, const GateProgress& progress)
      : commands_(commands),
        rules_(rules),
        progress_(progress),
        starter_(commands.out, commands.deadline_s, progress) {
    rules_.looks = GateLooks::after_each_block;
    runs_.order = RunOrder::blocks;
    if (commands_.mode == GateMode::lockstep) {
      lockstep_.emplace(commands_, starter_);
      runs_.order = RunOrder::lockstep;
      rules_.statistics.fewest_blocks = fewest_lockstep_pairs;
      rules_.statistics.noise = 0;  // nothing is cleared that this noise could hide
    }
  }

  GateReport settled() {
    warm_up();
    while (true) {
      add_block();
      GateReport report = judged(runs_);
      // Fewer blocks than the rules want can only show what is certain.
      if (blocks_ < rules_.statistics.fewest_blocks && !is_certain(report)) continue;
      progress_(gate_headline(report));
      const bool open = report.verdict == GateVerdict::inconclusive;
      if (!open || blocks_ >= rules_.statistics.most_blocks) return report;
    }
  }

  /// Reports the error with the verdict of the whole blocks before it.
  GateReport ended_by(const Error& error) const {
    GateReport report;
    if (blocks_ > 0) {
      RunPairs whole = runs_;
      const std::size_t runs = lockstep_ ? blocks_ : 2 * blocks_;
      // Runs of a block that broke off have no counterpart and are left out.
      whole.base.runs.resize(runs);
      whole.head.runs.resize(runs);
      if (lockstep_) whole.turns.resize(blocks_);
      try {
        report = judged(whole);
      } catch (const Error&) {
        report = {};  // nothing in these runs can be judged
      }
    }
    report.order = runs_.order;
    report.blocks = blocks_;
    report.more_blocks.reset();
    report.why_inconclusive.clear();
    report.error = error;
    return report;
  }

 private:
  GateReport judged(const RunPairs& runs) const {
    GateReport report = judge_gate(runs, rules_);
    if (report.lockstep) {
      report.lockstep->steps_per_turn = lockstep_->steps_per_turn();
      report.lockstep->idle_cpu_share = lockstep_->idle_cpu_share();
    }
    return report;
  }

  RunDigest run(const std::string& side, const std::string& line, const std::string& folder) {
    starter_.make_home(folder);
    BegunRun begun = starter_.begin(side, line, folder);
    return starter_.finish(begun);
  }
  RunDigest base(const std::string& folder) { return run("--base-cmd", commands_.base, folder); }
  RunDigest head(const std::string& folder) { return run("--head-cmd", commands_.head, folder); }

  void warm_up() {
    if (lockstep_) {
      // The pair that is tried out shows at the same time whether lockstep works.
      add(lockstep_->try_out("tried-"), warm_up_);
    } else {
      warm_up_.base.runs = {base("warmup-base")};
      warm_up_.head.runs = {head("warmup-head")};
    }
    require_comparable(warm_up_.base, warm_up_.head, "--base-cmd", "--head-cmd");
  }

  /// True where the verdict needs no further blocks; then the report says why.
  bool is_certain(GateReport& report) const {
    const auto worse = certain_regressions(report, runs_, warm_up_);
    if (worse.empty()) return false;
    report.notes.push_back(fmt::format(
        "stopped after {} {}{}: {} worse in every run of the head and exact; metrics with noise "
        "were not waited for",
        blocks_, lockstep_ ? "pair" : "block", blocks_ == 1 ? "" : "s",
        fmt::format("{} {}", fmt::join(worse, ", "), worse.size() == 1 ? "is" : "are")));
    return true;
  }

  static void add(const LockstepPair& pair, RunPairs& runs) {
    runs.base.runs.push_back(pair.base);
    runs.head.runs.push_back(pair.head);
    runs.turns.push_back(pair.turns);
  }

  void add_block() {
    if (lockstep_) {
      add(lockstep_->run(fmt::format("pair-{:02}/", blocks_ + 1)), runs_);
    } else {
      const std::string folder = fmt::format("block-{:02}/", blocks_ + 1);
      runs_.base.runs.push_back(base(folder + "1-base"));
      runs_.head.runs.push_back(head(folder + "2-head"));
      runs_.head.runs.push_back(head(folder + "3-head"));
      runs_.base.runs.push_back(base(folder + "4-base"));
    }
    // Checked after every block: a command can change what it runs.
    require_comparable(runs_.base, runs_.head, "--base-cmd", "--head-cmd");
    ++blocks_;
  }

  const GateCommands& commands_;
  GateRules rules_;
  const GateProgress& progress_;
  GateRuns starter_;
  std::optional<LockstepPairs> lockstep_;
  RunPairs runs_, warm_up_;
  std::size_t blocks_ = 0;  ///< whole ones
};

}  // namespace

GateReport run_gate(const GateCommands& commands, const GateRules& rules,
                    const GateProgress& progress) {
  GateSession session(commands, rules, progress);
  try {
    return session.settled();
  } catch (const LockstepRefused& refused) {
    const std::string note = fmt::format("blocks instead of lockstep: {}", refused.what());
    progress(note);
    GateCommands in_blocks = commands;
    in_blocks.mode = GateMode::blocks;
    GateReport report = run_gate(in_blocks, rules, progress);
    report.notes.push_back(note);
    return report;
  } catch (const Error& error) {
    return session.ended_by(error);
  }
}

}  // namespace heteroperf
