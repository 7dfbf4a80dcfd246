#include "runners/schedule/simulate/message_table.hpp"

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_named = 8;

}  // namespace

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
  message.route = 2 * i.edge + gradient;
  return id;
}

void MessageTable::require_both_ends(const Schedule& schedule, const MessageIndex& index) const {
  std::vector<Problem> problems;
  for (const Message& message : messages_) {
    if ((message.send < 0) == (message.receive < 0)) continue;
    const bool sent = message.send >= 0, at_from = sent == (message.route % 2 == 0);
    const int edge = message.route / 2;
    problems.push_back(
        {place_in_program(schedule, at_from ? index.rank_from(edge) : index.rank_to(edge),
                          sent ? message.send : message.receive),
         sent ? "nobody receives it" : "nobody sends it", "Check the schedule's programs."});
    if (problems.size() == most_named) break;
  }
  if (!problems.empty()) throw UserError(problems);
}

}  // namespace heteroperf
