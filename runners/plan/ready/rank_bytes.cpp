// A rank holds some bytes whatever the order of its passes is. They leave the room for
// micro-batches under way.
//
// A rank's *room* is its device's memory without parameters and states, the fullest pass beyond
// what is kept of its micro-batch, and one message that waits to be fetched. A search for an order
// that keeps what is kept within the room gives a plan that fits, up to messages that wait longer;
// the ledger has the last word.
#include "runners/plan/ready/rank_bytes.hpp"

#include <algorithm>
#include <variant>

#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_bytes.hpp"

namespace heteroperf {
namespace {

/// The engine's arena begins every tensor on a cache line.
constexpr std::uint64_t arena_alignment_bytes = 64;

/// The fullest moment of any pass beyond what is kept from F to B.
std::uint64_t passing(const StageMemory& memory) {
  const std::uint64_t most = std::max({memory.forward, memory.recompute, memory.input_gradient,
                                       memory.weight_gradient, memory.backward});
  return most - std::min(most, memory.after_forward);
}

/// Stands for all parts that take the same memory: those of patches may have a row more than
/// others.
SequencePart like(const SequencePart& part) {
  return part.order == SequenceOrder::patches ? part : part.first_part();
}

}  // namespace

const TensorShard& RankBytes::shard_of(const RankRole::Part& part) {
  const StageReplica& replica = replica_of(part);
  return shards_.of(static_cast<int>(replica.ranks.size()), part.tensor_index, replica.part);
}

std::vector<std::int64_t> RankBytes::kind_of(const std::vector<RankRole::Part>& parts) const {
  std::vector<std::int64_t> kind;
  for (const RankRole::Part& part : parts) {
    const StageReplica& replica = replica_of(part);
    for (const std::int64_t number :
         {std::int64_t{part.segment.value()}, std::int64_t{part.tensor_index},
          static_cast<std::int64_t>(replica.ranks.size()), replica.micro_batch,
          std::int64_t{replica.part.parts}, std::int64_t{replica.part.chunk_count()},
          std::int64_t{like(replica.part).index}}) {
      kind.push_back(number);
    }
  }
  return kind;
}

const StageMemory& RankBytes::passes_of(const RankRole::Part& part) {
  const StageReplica& replica = replica_of(part);
  const auto key = std::tuple(part.stage, static_cast<int>(replica.ranks.size()), part.tensor_index,
                              replica.micro_batch, like(replica.part));
  const auto known = memories_.find(key);
  if (known != memories_.end()) return known->second;
  const StagePart stage{staged_,
                        part.stage,
                        shard_of(part),
                        replica.micro_batch,
                        plan_.stages[part.stage].recomputation,
                        plan_.sequence_parallel};
  return memories_.emplace(key, stage_memory(stage, task_.precision)).first->second;
}

/// Each weight counts once, by the first part that uses it.
MemoryLedger RankBytes::states_of(const std::vector<RankRole::Part>& parts) {
  std::set<std::pair<std::size_t, std::size_t>> held;
  std::uint64_t elements = 0, owned = 0, frozen = 0;
  for (const RankRole::Part& part : parts) {
    const std::uint64_t before = elements;
    const auto add = [&](NodeId id) {
      const bool stays = task_.graph.node(id).weights == Weights::frozen;
      (stays ? frozen : elements) += hold(shard_of(part), id, held);
    };
    for (const NodeId id : staged_.nodes[part.stage]) {
      add(id);
      const auto* linear = std::get_if<Linear>(&task_.graph.node(id).attributes);
      if (linear != nullptr && !linear->tied_to.empty()) add(task_.graph.find(linear->tied_to));
    }
    owned += owned_share(part, elements - before);
  }
  const std::uint64_t small = bytes_per_element(task_.precision),
                      master = bytes_per_master(task_.precision);
  const std::uint64_t states = task_.optimizer == OptimizerKind::adamw ? 2 : 1;
  const bool copies = small != master;
  MemoryLedger ledger;
  ledger.weights = Bytes((elements + frozen) * small);
  ledger.gradients = Bytes(elements * (small + (copies ? master : 0)));
  ledger.optimizer = Bytes(owned * states * master + (copies ? elements * master : 0));
  return ledger;
}

/// Elements of a node's parameters in an arena whose tensors begin on cache lines.
std::uint64_t RankBytes::hold(const TensorShard& shard, NodeId id,
                              std::set<std::pair<std::size_t, std::size_t>>& held) const {
  const std::uint64_t aligned = arena_alignment_bytes / bytes_per_element(task_.precision);
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
std::uint64_t RankBytes::owned_share(const RankRole::Part& part, std::uint64_t elements) const {
  if (plan_.zero_stage == 0) return elements;
  const auto& replicas = plan_.stages[part.stage].replicas;
  const bool alike = std::ranges::all_of(replicas, [&](const StageReplica& r) {
    return r.ranks.size() == replicas.front().ranks.size();
  });
  const auto copies = static_cast<std::uint64_t>(replicas.size());
  return alike ? (elements + copies - 1) / copies : elements;
}

StageShares stage_shares(RankBytes& bytes, const Cluster& cluster) {
  StageShares shares;
  std::set<std::pair<std::string, std::vector<std::int64_t>>> done;
  const auto parts_of = rank_parts(bytes.plan());
  for (std::size_t rank = 0; rank < parts_of.size(); ++rank) {
    const DeviceClass& device = class_of(cluster, RankId(rank));
    if (device.memory == Bytes(0)) continue;
    if (!done.emplace(device.name, bytes.kind_of(parts_of[rank])).second) continue;
    shares.resize(bytes.plan().stages.size());
    std::uint64_t most = 0, waiting = 0;
    for (const RankRole::Part& part : parts_of[rank]) {
      const StageMemory& memory = bytes.passes_of(part);
      most = std::max(most, passing(memory));
      waiting = std::max(waiting, memory.outputs);
    }
    const std::uint64_t taken = bytes.states_of(parts_of[rank]).total().value() + most + waiting;
    // Without any room everything is too much; the ledger then tells how much.
    const auto room =
        static_cast<double>(device.memory.value() - std::min(device.memory.value() - 1, taken));
    for (const RankRole::Part& part : parts_of[rank]) {
      const StageMemory& memory = bytes.passes_of(part);
      StageShare& share = shares[part.stage];
      share.kept = std::max(share.kept, static_cast<double>(memory.after_forward) / room);
      share.split = std::max(share.split, static_cast<double>(memory.after_input_gradient) / room);
    }
  }
  return shares;
}

}  // namespace heteroperf
