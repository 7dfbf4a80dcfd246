// The memory of every rank of a plan at its fullest moment.
//
// RankBytes counts parameters and their states, and gives the bytes of each pass. Activations and
// messages are followed through the rank's program by RankMemoryTrace. The simulated timeline says
// when other ranks fetch what this rank sends, because until then the tensors stay. Ranks in like
// places of like replicas need the same, so each distinct combination is followed once.
//
// Three kinds of bytes are followed. *Kept* ones belong to a micro-batch between its passes.
// *Moving* ones have arrived and wait for the pass that uses them, or lie between two segments of
// the same rank. *Unfetched* ones were made here and wait until another rank begins to receive
// them, which fetch_times() reads from the simulated step. Around each pass the fullest moment is
// noted: what is kept and under way, and what the pass needs itself. An instruction changes these
// sums and nothing else, so a program is followed once from its beginning to its end.
#include "runners/plan/ready/ready_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/ready/rank_bytes.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {
namespace {

using EdgeMicroBatch = std::pair<EdgeId, MicroBatchId>;

/// When, in the simulated step, the other ends begin to receive activations ([0]) and gradients
/// ([1]): until then their tensors wait with the sender.
using FetchTimes = std::array<std::map<EdgeMicroBatch, double>, 2>;

FetchTimes fetch_times(const Schedule& schedule, const Timeline& timeline) {
  FetchTimes times;
  for (std::size_t q = 0; q < schedule.programs.size(); ++q) {
    for (std::size_t k = 0; k < schedule.programs[q].size(); ++k) {
      const Instruction& i = schedule.programs[q][k];
      if (!is_receive(i.op)) continue;
      double& time = times[i.op == Op::recv_grad][{i.edge, i.micro_batch}];
      time = std::max(time, timeline.spans[q][k].start);
    }
  }
  return times;
}

/// Tensors that wait for other ranks to fetch them.
class Unfetched {
 public:
  void add(std::uint64_t bytes, double fetched) {
    bytes_ += bytes;
    waiting_.push_back({bytes, fetched});
  }
  /// Tensors leave in their order, as transfers are given back.
  void retire(double now) {
    while (!waiting_.empty() && waiting_.front().fetched <= now) {
      bytes_ -= waiting_.front().bytes;
      waiting_.pop_front();
    }
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Sent {
    std::uint64_t bytes;
    double fetched;
  };
  std::deque<Sent> waiting_;
  std::uint64_t bytes_ = 0;
};

/// One segment's micro-batches on a rank.
struct PartState {
  RankRole::Part role;
  StageMemory memory;
  std::map<MicroBatchId, std::uint64_t> kept = {};
  Unfetched outputs = {}, gradients = {};  ///< on their way
};

/// Follows the memory of one rank while it runs its program, by sizes alone.
class RankMemoryTrace {
 public:
  /// Both outlive it.
  RankMemoryTrace(const Schedule& schedule, const FetchTimes& fetches)
      : schedule_(schedule), fetches_(fetches) {}

  void add_part(const PartState& part) { parts_.push_back(part); }
  /// Bytes of an edge's activations ([0]) and gradients ([1]) on this rank.
  std::array<IdVector<EdgeId, std::uint64_t>, 2> edge_bytes;

  /// `spans` [instruction] of the simulated step.
  void run(const std::vector<Instruction>& program, const std::vector<TimeSpan>& spans) {
    for (std::size_t k = 0; k < program.size(); ++k) {
      // Tensors are given back when a computation begins; between messages nothing is freed.
      if (is_compute(program[k].op)) retire(spans[k].start);
      if (here(program[k].segment)) {
        step(program[k]);
      } else {
        receive_near(program[k]);
      }
    }
  }

  /// Bytes kept between passes at their most, and all bytes at theirs; the two moments may differ.
  std::uint64_t most_kept() const { return most_kept_; }
  std::uint64_t most() const { return most_; }

 private:
  using Key = EdgeMicroBatch;

  PartState& part_of(const Instruction& i) {
    const auto place = std::ranges::find_if(
        parts_, [&](const PartState& part) { return part.role.segment == i.segment; });
    HETEROPERF_EXPECT(place != parts_.end());
    return *place;
  }

  bool here(SegmentId segment) const {
    return std::ranges::any_of(parts_,
                               [&](const PartState& part) { return part.role.segment == segment; });
  }

  void step(const Instruction& i) {
    switch (i.op) {
      case Op::recv_act:
      case Op::recv_grad:
        put({i.edge, i.micro_batch}, carries_gradient(i.op));
        return note(0);
      case Op::forward:
        take_inputs(i, false);
        pass(i, &StageMemory::forward, &StageMemory::after_forward);
        return hand_on(i, false);
      case Op::recompute:
        return pass(i, &StageMemory::recompute, &StageMemory::after_recompute);
      case Op::input_gradient:
        take_inputs(i, true);
        pass(i, &StageMemory::input_gradient, &StageMemory::after_input_gradient);
        return hand_on(i, true);
      case Op::backward:
        take_inputs(i, true);
        pass(i, &StageMemory::backward, nullptr);
        return hand_on(i, true);
      case Op::weight_gradient:
        return pass(i, &StageMemory::weight_gradient, nullptr);
      default:
        return;
    }
  }

  /// A pass of another rank of the position: what it hands to segments here arrives.
  void receive_near(const Instruction& i) {
    const bool gradient = makes_input_gradient(i.op);
    if (i.op != Op::forward && !gradient) return;
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      const Edge& edge = schedule_.graph.edges[e];
      const SegmentId from = gradient ? edge.to : edge.from, to = gradient ? edge.from : edge.to;
      if (from == i.segment && here(to) && (!gradient || edge.gradient)) {
        put({e, i.micro_batch}, gradient);
      }
    }
    note(0);
  }

  /// A second tensor under the same key takes the place of the first.
  void put(Key key, bool gradient) {
    take(key, gradient);
    const std::uint64_t bytes = edge_bytes[gradient][key.first];
    arrived_[gradient].emplace(key, bytes);
    moving_ += bytes;
  }

  void take(Key key, bool gradient) {
    const auto entry = arrived_[gradient].find(key);
    if (entry == arrived_[gradient].end()) return;
    moving_ -= entry->second;
    arrived_[gradient].erase(entry);
  }

  /// Lets go of tensors that other ranks have fetched by now.
  void retire(double now) {
    for (PartState& part : parts_) {
      part.outputs.retire(now);
      part.gradients.retire(now);
    }
  }

  std::uint64_t unfetched() const {
    std::uint64_t sum = 0;
    for (const PartState& part : parts_) sum += part.outputs.bytes() + part.gradients.bytes();
    return sum;
  }

  /// Uses up the activations that arrived, or the gradients.
  void take_inputs(const Instruction& i, bool gradient) {
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      const Edge& edge = schedule_.graph.edges[e];
      if ((gradient ? edge.from : edge.to) == i.segment) take({e, i.micro_batch}, gradient);
    }
  }

  /// Hands what a pass made to a segment here or to those that fetch it. Outputs leave together,
  /// when the last of their receivers has fetched them, and gradients one by one.
  void hand_on(const Instruction& i, bool gradient) {
    PartState& part = part_of(i);
    std::optional<double> last;
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      const Edge& edge = schedule_.graph.edges[e];
      if ((gradient ? edge.to : edge.from) != i.segment || (gradient && !edge.gradient)) continue;
      const Key key{e, i.micro_batch};
      if (here(gradient ? edge.from : edge.to)) {
        put(key, gradient);
        continue;
      }
      const auto place = fetches_[gradient].find(key);
      const double fetched = place == fetches_[gradient].end() ? 0 : place->second;
      if (gradient) {
        part.gradients.add(edge_bytes[1][e], fetched);
      } else {
        last = std::max(last.value_or(0), fetched);
      }
    }
    if (last) part.outputs.add(part.memory.outputs, *last);
    note(0);
  }

  /// `most` is of this micro-batch alone; `after` is null where nothing is kept.
  void pass(const Instruction& i, std::uint64_t StageMemory::*most,
            std::uint64_t StageMemory::*after) {
    PartState& part = part_of(i);
    set_kept(part, i.micro_batch, 0);
    note(part.memory.*most);
    if (after != nullptr) set_kept(part, i.micro_batch, part.memory.*after);
    note(0);
  }

  void set_kept(PartState& part, MicroBatchId micro_batch, std::uint64_t bytes) {
    std::uint64_t& kept = part.kept[micro_batch];
    kept_ += bytes - kept;
    kept = bytes;
  }

  /// Looks whether this is the fullest moment so far; `running` are the bytes of the pass that
  /// runs.
  void note(std::uint64_t running) {
    most_kept_ = std::max(most_kept_, kept_);
    most_ = std::max(most_, kept_ + moving_ + unfetched() + running);
  }

  const Schedule& schedule_;
  const FetchTimes& fetches_;
  std::vector<PartState> parts_;
  std::array<std::map<Key, std::uint64_t>, 2> arrived_;  ///< not yet used
  std::uint64_t kept_ = 0, moving_ = 0, most_kept_ = 0, most_ = 0;
};

class LedgerMaker {
 public:
  LedgerMaker(RankBytes& bytes, const Schedule& schedule, const Timeline& timeline)
      : bytes_(bytes),
        task_(bytes.task()),
        schedule_(schedule),
        timeline_(timeline),
        fetches_(fetch_times(schedule, timeline)) {}

  std::vector<MemoryLedger> run() {
    std::vector<MemoryLedger> ledgers;
    for (const RankRole& role : rank_roles(bytes_.plan(), schedule_))
      ledgers.push_back(known_ledger(role));
    return ledgers;
  }

 private:
  /// Ranks of one position that hold like parts of like replicas need the same.
  const MemoryLedger& known_ledger(const RankRole& role) {
    const std::pair key(role.position, bytes_.kind_of(role.parts));
    const auto known = ledgers_.find(key);
    if (known != ledgers_.end()) return known->second;
    return ledgers_.emplace(key, ledger(role)).first->second;
  }

  MemoryLedger ledger(const RankRole& role) {
    MemoryLedger ledger = bytes_.states_of(role.parts);
    RankMemoryTrace trace(schedule_, fetches_);
    for (const RankRole::Part& part : role.parts) {
      trace.add_part({part, bytes_.passes_of(part)});
    }
    set_edges(role, trace);
    const std::size_t place = role.position.index();
    trace.run(schedule_.programs[place], timeline_.spans[place]);
    ledger.activations = Bytes(trace.most_kept());
    ledger.buffers = Bytes(trace.most() - trace.most_kept());
    return ledger;
  }

  /// Bytes of every message that begins or ends at the rank, for its own share of the samples.
  void set_edges(const RankRole& role, RankMemoryTrace& trace) {
    for (auto& bytes : trace.edge_bytes) bytes.assign(schedule_.graph.edges.size(), 0);
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      const Edge& edge = schedule_.graph.edges[e];
      const auto& edges = bytes_.staged().edges;
      const StageEdge& staged = edges[e.index() % edges.size()];
      for (const RankRole::Part& part : role.parts) {
        if (part.segment != edge.from && part.segment != edge.to) continue;
        for (const bool gradient : {false, true}) {
          const auto& nodes = gradient ? staged.with_gradient : staged.nodes;
          std::uint64_t& bytes = trace.edge_bytes[gradient][e];
          const StageReplica& replica = bytes_.replica_of(part);
          const ModelGraph& local = bytes_.sequence_of(part);
          std::uint64_t here = 0;
          for (const NodeId node : nodes) {
            const std::uint64_t all = message_bytes(local, {node}, replica.micro_batch,
                                                    task_.precision, WireFormat::fp32);
            // A part of two chunks is copied on its way: they travel one after the other.
            const bool is_part =
                replica.part.chunk_count() > replica.part.parts &&
                local.node(node).output.front() != task_.graph.node(node).output.front();
            here += is_part ? 2 * all : all;
          }
          bytes = std::max(bytes, here);
        }
      }
    }
  }

  RankBytes& bytes_;
  const TrainingTask& task_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  FetchTimes fetches_;
  std::map<std::pair<PositionId, std::vector<std::int64_t>>, MemoryLedger> ledgers_;
};

}  // namespace

std::vector<MemoryLedger> plan_memory(RankBytes& bytes, const Schedule& schedule,
                                      const Timeline& timeline) {
  return LedgerMaker(bytes, schedule, timeline).run();
}

}  // namespace heteroperf
