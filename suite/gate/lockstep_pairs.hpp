#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include "metrics/base/random.hpp"
#include "metrics/turn_pairs.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "suite/gate/gate_session.hpp"

namespace heteroperf {

/// Two programs cannot be run in lockstep; in blocks they can. The text says why.
class LockstepRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One pair of fresh processes that moved by turns.
struct LockstepPair {
  RunDigest base, head;
  TurnPair turns;
};

/// Runs pairs of processes by turns (suite/program/turn_protocol.hpp, metrics/turn_pairs.hpp).
/// Every turn is a line of `turns.csv` in the gate's folder.
class LockstepPairs {
 public:
  /// `commands` and `runs` outlive it.
  LockstepPairs(const GateCommands& commands, GateRuns& runs);

  /// A short pair that does not count: how long a step is, and whether both programs speak the
  /// protocol and fit the memory together. Throws LockstepRefused where not.
  LockstepPair try_out(const std::string& folder);
  /// Throws as run_gate() says; Error{run_failed} where a program leaves the protocol, {timeout}
  /// where a turn takes longer than it may. Both programs have ended then.
  LockstepPair run(const std::string& folder);

  int steps_per_turn() const { return steps_per_turn_; }
  /// Share of a core that a program used at most while it stood still, over one pair.
  double idle_cpu_share() const { return idle_cpu_share_; }

 private:
  class Side;
  LockstepPair move_by_turns(Side& base, Side& head, double seconds);
  TurnQuad run_quad(Side& base, Side& head);
  bool toss() { return (random_.bits() & 1) != 0; }

  const GateCommands& commands_;
  GateRuns& runs_;
  RandomStream random_;
  CpuSet cpus_;  ///< usable by the runs
  std::ofstream log_;
  int steps_per_turn_ = 1;
  double idle_cpu_share_ = 0;
  std::size_t pair_ = 0, quad_ = 0;  ///< numbers of the line in the log
};

}  // namespace heteroperf
