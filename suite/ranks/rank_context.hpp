#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "results/journal/events.hpp"
#include "results/journal/journal.hpp"
#include "runners/cluster/rank_device.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/engine.hpp"
#include "suite/config/placement.hpp"
#include "suite/config/run_config.hpp"
#include "suite/ranks/progress.hpp"
#include "suite/ranks/rank_log.hpp"

namespace heteroperf {

class TurnTaker;

/// The things that rank 0 keeps while a workload runs; all null or empty on the other ranks.
struct FirstRank {
  JournalWriter* journal = nullptr;  ///< rank 0's own events take no detour
  ProgressLine* progress = nullptr;
  TurnTaker* turns = nullptr;  ///< in lockstep only
  std::string run_id = {};
  std::filesystem::path folder = {};  ///< the run writes there
};

/// Everything that one rank of a run works with. References outlive the run.
struct RankContext {
  const RunConfig& config;
  const Placement& placement;
  World& world;
  Engine& engine;
  FirstRank first = {};
  bool in_lockstep = false;                    ///< the same on all ranks: the run moves by turns
  std::unique_ptr<Communicator> devices = {};  ///< all ranks by the GPUs' library, with nccl only
  /// The ways of the run's products, settled before its first step; null: none has a choice.
  std::shared_ptr<const ProductChoices> products = {};
  std::string run_folder = {};           ///< rank 0's, absolute; with rank_logs or checkpoints only
  std::optional<RankLog> log_file = {};  ///< with rank_logs only
  std::function<void()> look_around = {};  ///< told after every step; LiveWatch sets it
  /// Add to this rank's clock to get the journal's: rank 0's without the time a run in lockstep
  /// stood still.
  std::int64_t clock_offset_ns = 0;
  /// Wall time of this rank for events and progress, the journal's own cost apart.
  double measuring_s = 0;
  double steps_s = 0;  ///< wall time of this rank's training steps

  Communicator& all_ranks() const { return *world.communicator; }
  ControlChannel& control() const { return *world.control; }
  /// The GPU that this rank computes on; none: the host's cores.
  std::optional<int> gpu() const { return placement.bindings[all_ranks().rank().value()].gpu; }
  const RankDevice& device() const { return placement.devices[all_ranks().rank().index()]; }
  bool is_first() const { return all_ranks().rank() == RankId(0); }
  /// Appends an event to the run's journal, from any rank.
  void post(const Event& event);
  /// A line of the rank's own log; nothing without one.
  void log(const std::string& text);
  void log_step(std::uint64_t n, double loss);
  /// Shows the progress line; nothing on ranks without one.
  void show(const ProgressState& state);
};

/// The journal's line of a rank's device.
DeviceEvent device_event(RankId rank, const RankDevice& device);
/// Adds every emulated chip of these names whose file no longer says what the run computed with.
void add_changed_chips(const Journal& journal, const std::vector<std::string>& names,
                       ProblemList& problems);

/// The result of a program's loop. `reason` is empty where all went well.
struct ProgramEnd {
  bool interrupted = false, failed = false;
  std::string reason;
};

/// True once a signal or another rank asked to stop; tells every rank about a signal here. Throws
/// PeerError once a rank is known to have failed.
bool stop_wanted(const RankContext& context);

/// Returns what `root` says on every rank of the group, because the ranks' clocks and what they
/// hear differ. Collective.
bool share_answer(Communicator& group, bool decision, RankId root = RankId(0));

/// A group's next act. `hold`: a turn in lockstep is over.
enum class Directive : std::uint8_t { go_on, next_phase, hold, end, interrupt };
/// The decision of the group's leader, its rank 0, unless it is to stop. Collective.
Directive agree(const RankContext& context, Communicator& group,
                const std::function<Directive()>& of_leader);

// Ranks talk to rank 0 over the control channel: events for the journal, the clock, and questions
// to the master of a search or of turns.

/// Takes a question of a rank, or news of it (`reply` is empty).
using QuestionHandler =
    std::function<void(const std::string& question, ControlChannel::Reply reply)>;
/// Rank 0's side: events go to `journal`. Install with ControlChannel::serve.
ControlChannel::Handler answer_ranks(JournalWriter& journal, QuestionHandler on_question = {});

/// Any rank: rank 0's monotonic clock, when it has handled everything this rank posted before.
std::int64_t ask_clock(ControlChannel& control);
/// Any rank: asks the master; the reply may take as long as a trial.
std::string ask_master(ControlChannel& control, const std::string& question);
/// Any rank: tells the master something that has no answer.
void tell_master(ControlChannel& control, const std::string& news);

}  // namespace heteroperf
