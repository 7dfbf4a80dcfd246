#include "runners/schedule/simulate/meetings.hpp"

#include <algorithm>
#include <bit>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_named = 8;

}  // namespace

/// Names at most a few of the places that are wrong; a broken file may have millions.
MessageTable::MessageTable(const Schedule& schedule, const MessageIndex& index)
    : messages_(2 * static_cast<std::size_t>(index.size())) {
  std::vector<Problem> problems;
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    const std::vector<Instruction>& program = schedule.programs[rank];
    std::vector<std::int32_t>& ids = ids_.emplace_back(program.size(), -1);
    for (std::size_t k = 0; k < program.size() && problems.size() < most_named; ++k) {
      if (!is_message(program[k].op)) continue;
      const auto at = static_cast<std::int32_t>(k);
      ids[k] = enter(program[k], index.find(program[k], rank), at);
      if (ids[k] >= 0) continue;
      problems.push_back({place_in_program(schedule, rank, at),
                          "the graph has no such message at this rank, or it stands here twice",
                          "Check the schedule's programs."});
    }
  }
  if (!problems.empty()) throw UserError(problems);
  require_both_ends(schedule, index);
}

std::int32_t MessageTable::enter(const Instruction& i, std::int32_t number, std::int32_t index) {
  if (number < 0) return -1;
  const std::int32_t gradient = carries_gradient(i.op) ? 1 : 0, id = 2 * number + gradient;
  Message& message = messages_[id];
  std::int32_t& end = is_send(i.op) ? message.send : message.receive;
  if (end >= 0) return -1;
  end = index;
  message.route = 2 * i.edge.value() + gradient;
  return id;
}

/// A message with one end would block its rank for ever.
void MessageTable::require_both_ends(const Schedule& schedule, const MessageIndex& index) const {
  std::vector<Problem> problems;
  for (const Message& message : messages_) {
    if ((message.send < 0) == (message.receive < 0)) continue;
    const bool sent = message.send >= 0, at_from = sent == (message.route % 2 == 0);
    const EdgeId edge(message.route / 2);
    problems.push_back(
        {place_in_program(schedule, at_from ? index.rank_from(edge) : index.rank_to(edge),
                          sent ? message.send : message.receive),
         sent ? "nobody receives it" : "nobody sends it", "Check the schedule's programs."});
    if (problems.size() == most_named) break;
  }
  if (!problems.empty()) throw UserError(problems);
}

/// A collective among m ranks takes ⌈log2(m)⌉ rounds of messages.
CollectiveTable::CollectiveTable(const Schedule& schedule, const CollectiveIndex& index,
                                 double reduction_time)
    : collectives_(index.size()) {
  read(schedule, index, reduction_time);
  gather_members(schedule);
  for (Collective& c : collectives_) {
    const auto rounds = std::bit_width(static_cast<unsigned>(std::max(1, c.members)) - 1U);
    c.time += schedule.graph.latency * static_cast<double>(rounds);
    c.missing = c.members;
  }
}

/// Reads which collective each program names, in order, and the time of each.
void CollectiveTable::read(const Schedule& schedule, const CollectiveIndex& index,
                           double reduction_time) {
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    CollectiveIndex::Reader reader(index, rank);
    std::vector<std::int32_t>& named = of_rank_.emplace_back();
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::size_t k = 0; k < program.size(); ++k) {
      const Instruction& i = program[k];
      if (!CollectiveIndex::is_collective(i.op)) continue;
      const std::int32_t id = reader.find(i);
      if (id < 0) {
        throw UserError(place_in_program(schedule, rank, static_cast<std::int32_t>(k)),
                        "the graph has no such collective at this rank",
                        "Check the schedule's programs.");
      }
      named.push_back(id);
      const bool interacts = i.op == Op::interact;
      collectives_[id].time =
          interacts ? schedule.graph.interactions[i.interaction()].cost : reduction_time;
    }
  }
}

/// Keeps the last place of each collective in a program: walks the names backwards to find it, then
/// forwards to enter it.
void CollectiveTable::gather_members(const Schedule& schedule) {
  std::vector<std::int32_t> seen_by(collectives_.size(), -1);
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    for (auto id = of_rank_[rank].rbegin(); id != of_rank_[rank].rend(); ++id) {
      if (seen_by[*id] == rank) {
        *id = -1;
      } else {
        seen_by[*id] = rank;
        ++collectives_[*id].members;
      }
    }
  }
  std::int32_t next = 0;
  for (Collective& c : collectives_) {
    c.first_place = next;
    next += c.members;
  }
  places_.resize(next);
  std::vector<std::int32_t> filled(collectives_.size(), 0);
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    std::size_t k = 0;
    for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) {
      if (!CollectiveIndex::is_collective(schedule.programs[rank][i].op)) continue;
      const std::int32_t id = of_rank_[rank][k++];
      if (id < 0) continue;
      places_[collectives_[id].first_place + filled[id]++] = {rank, static_cast<std::int32_t>(i)};
    }
  }
}

}  // namespace heteroperf
