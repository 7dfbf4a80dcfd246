// The memory of every rank of a plan at its fullest moment.
//
// Parameters and their states are counted: each weight once, rounded up to cache lines as the
// engine's arena does. Activations and messages are followed through the rank's program by
// RankMemoryTrace, with the bytes of each pass from stage_memory(). The simulated timeline says
// when other ranks fetch what this rank sends, because until then the tensors stay. Ranks in like
// places of like replicas need the same, so each distinct combination is followed once.
#include "runners/plan/ready/plan_memory.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/ready/rank_memory_trace.hpp"
#include "runners/plan/tensor/shard_table.hpp"

namespace heteroperf {
namespace {

/// The engine's arena begins every tensor on a cache line.
constexpr std::uint64_t arena_alignment_bytes = 64;

class LedgerMaker {
 public:
  LedgerMaker(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
              const Schedule& schedule, const Timeline& timeline, Precision precision,
              OptimizerKind optimizer)
      : graph_(graph),
        staged_(staged),
        plan_(plan),
        schedule_(schedule),
        precision_(precision),
        optimizer_(optimizer),
        shards_(graph),
        timeline_(timeline),
        fetches_(schedule, timeline) {}

  std::vector<MemoryLedger> run() {
    std::vector<MemoryLedger> ledgers;
    for (const RankRole& role : rank_roles(plan_, schedule_)) ledgers.push_back(known_ledger(role));
    return ledgers;
  }

 private:
  const StageReplica& replica_of(const RankRole::Part& part) const {
    return plan_.stages[part.stage].replicas[part.replica];
  }
  const TensorShard& shard_of(const RankRole::Part& part) {
    return shards_.of(static_cast<int>(replica_of(part).ranks.size()), part.tensor_index);
  }

  /// Ranks of one position that hold like parts of like replicas need the same.
  const MemoryLedger& known_ledger(const RankRole& role) {
    std::vector<std::int64_t> key{role.position.value()};
    for (const RankRole::Part& part : role.parts) {
      const StageReplica& replica = replica_of(part);
      for (const std::int64_t one :
           {std::int64_t{part.segment.value()}, std::int64_t{part.tensor_index},
            static_cast<std::int64_t>(replica.ranks.size()), replica.micro_batch}) {
        key.push_back(one);
      }
    }
    const auto known = ledgers_.find(key);
    if (known != ledgers_.end()) return known->second;
    return ledgers_.emplace(std::move(key), ledger(role)).first->second;
  }

  MemoryLedger ledger(const RankRole& role) {
    MemoryLedger ledger;
    add_parameters(role, ledger);
    RankMemoryTrace trace(schedule_, fetches_);
    for (const RankRole::Part& part : role.parts) {
      trace.add_part({part, memory_of(part)});
    }
    set_edges(role, trace);
    const std::size_t place = role.position.index();
    trace.run(schedule_.programs[place], timeline_.spans[place]);
    ledger.activations = Bytes(trace.most_kept());
    ledger.buffers = Bytes(trace.most() - trace.most_kept());
    return ledger;
  }

  /// Ranks of one place in equal replicas have the same.
  const StageMemory& memory_of(const RankRole::Part& part) {
    const StageReplica& replica = replica_of(part);
    const auto key = std::tuple(part.stage, static_cast<int>(replica.ranks.size()),
                                part.tensor_index, replica.micro_batch);
    const auto known = memories_.find(key);
    if (known != memories_.end()) return known->second;
    const StagePart stage{staged_,
                          part.stage,
                          shard_of(part),
                          replica.micro_batch,
                          plan_.stages[part.stage].recomputation,
                          plan_.sequence_parallel};
    return memories_.emplace(key, stage_memory(stage, precision_)).first->second;
  }

  /// Bytes of every message that begins or ends at the rank, for its own share of the samples.
  void set_edges(const RankRole& role, RankMemoryTrace& trace) {
    const std::size_t edges = schedule_.graph.edges.size();
    trace.activation_bytes.assign(edges, 0);
    trace.gradient_bytes.assign(edges, 0);
    for (const EdgeId e : schedule_.graph.edges.ids()) {
      const Edge& edge = schedule_.graph.edges[e];
      const StageEdge& staged = staged_.edges[e.index() % staged_.edges.size()];
      for (const RankRole::Part& part : role.parts) {
        if (part.segment != edge.from && part.segment != edge.to) continue;
        const auto bytes = [&](const std::vector<NodeId>& nodes) {
          return message_bytes(graph_, nodes, replica_of(part).micro_batch, precision_,
                               WireFormat::fp32);
        };
        trace.activation_bytes[e] = std::max(trace.activation_bytes[e], bytes(staged.nodes));
        trace.gradient_bytes[e] = std::max(trace.gradient_bytes[e], bytes(staged.with_gradient));
      }
    }
  }

  /// Each weight once, by the first part that uses it.
  void add_parameters(const RankRole& role, MemoryLedger& ledger) {
    std::set<std::pair<std::size_t, std::size_t>> held;
    std::uint64_t elements = 0, owned = 0;
    for (const RankRole::Part& part : role.parts) {
      const std::uint64_t before = elements;
      for (const NodeId id : staged_.nodes[part.stage]) {
        const Node& node = shard_of(part).graph.node(id);
        elements += hold(shard_of(part), id, held);
        const auto* linear = std::get_if<Linear>(&node.attributes);
        if (linear != nullptr && !linear->tied_to.empty()) {
          elements += hold(shard_of(part), graph_.find(linear->tied_to), held);
        }
      }
      owned += owned_share(part, elements - before);
    }
    const std::uint64_t small = bytes_per_element(precision_),
                        master = bytes_per_master(precision_);
    const std::uint64_t states = optimizer_ == OptimizerKind::adamw ? 2 : 1;
    const bool copies = small != master;
    ledger.weights = Bytes(elements * small);
    ledger.gradients = Bytes(elements * (small + (copies ? master : 0)));
    ledger.optimizer = Bytes(owned * states * master + (copies ? elements * master : 0));
  }

  /// Elements of a node's parameters in an arena whose tensors begin on cache lines.
  std::uint64_t hold(const TensorShard& shard, NodeId id,
                     std::set<std::pair<std::size_t, std::size_t>>& held) const {
    const std::uint64_t aligned = arena_alignment_bytes / bytes_per_element(precision_);
    const Node& node = shard.graph.node(id);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      if (!held.emplace(id.index(), i).second) continue;
      const auto count = static_cast<std::uint64_t>(element_count(node.parameters[i].shape));
      sum += (count + aligned - 1) / aligned * aligned;
    }
    return sum;
  }

  /// ZeRO-1 spreads the states over copies of one degree; copies cut differently keep all of them.
  std::uint64_t owned_share(const RankRole::Part& part, std::uint64_t elements) const {
    if (plan_.zero_stage == 0) return elements;
    const auto& replicas = plan_.stages[part.stage].replicas;
    const bool alike = std::all_of(replicas.begin(), replicas.end(), [&](const StageReplica& r) {
      return r.ranks.size() == replicas.front().ranks.size();
    });
    const auto copies = static_cast<std::uint64_t>(replicas.size());
    return alike ? (elements + copies - 1) / copies : elements;
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  const Schedule& schedule_;
  Precision precision_;
  OptimizerKind optimizer_;
  ShardTable shards_;
  const Timeline& timeline_;
  FetchTimes fetches_;
  std::map<std::tuple<StageId, int, int, std::int64_t>, StageMemory> memories_;
  std::map<std::vector<std::int64_t>, MemoryLedger> ledgers_;
};

}  // namespace

std::vector<MemoryLedger> plan_memory(const ModelGraph& graph, const StagedGraph& staged,
                                      const Plan& plan, const Schedule& schedule,
                                      const Timeline& timeline, Precision precision,
                                      OptimizerKind optimizer) {
  return LedgerMaker(graph, staged, plan, schedule, timeline, precision, optimizer).run();
}

}  // namespace heteroperf
