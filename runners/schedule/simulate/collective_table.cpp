#include "runners/schedule/simulate/collective_table.hpp"

#include <algorithm>
#include <bit>

#include "metrics/base/error.hpp"

namespace heteroperf {

CollectiveTable::CollectiveTable(const Schedule& schedule, const CollectiveIndex& index,
                                 double reduction_time)
    : collectives_(static_cast<std::size_t>(index.size())) {
  read(schedule, index, reduction_time);
  gather_members(schedule);
  for (Collective& c : collectives_) {
    const auto rounds = std::bit_width(static_cast<unsigned>(std::max(1, c.members)) - 1U);
    c.time += schedule.graph.latency * static_cast<double>(rounds);
    c.missing = c.members;
  }
}

void CollectiveTable::read(const Schedule& schedule, const CollectiveIndex& index,
                           double reduction_time) {
  for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
    CollectiveIndex::Reader reader(index, rank);
    std::vector<std::int32_t>& named = of_rank_.emplace_back();
    const std::vector<Instruction>& program = schedule.programs[rank];
    for (std::size_t k = 0; k < program.size(); ++k) {
      const Instruction& i = program[k];
      if (!CollectiveIndex::names_one(i.op)) continue;
      const std::int32_t id = reader.find(i);
      if (id < 0) {
        throw UserError(place_in_program(schedule, rank, static_cast<std::int32_t>(k)),
                        "the graph has no such collective at this rank",
                        "Check the schedule's programs.");
      }
      named.push_back(id);
      const bool interacts = i.op == Op::interact;
      collectives_[id].time = interacts ? schedule.graph.interactions[i.edge].cost : reduction_time;
    }
  }
}

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
      if (!CollectiveIndex::names_one(schedule.programs[rank][i].op)) continue;
      const std::int32_t id = of_rank_[rank][k++];
      if (id < 0) continue;
      places_[collectives_[id].first_place + filled[id]++] = {rank, static_cast<std::int32_t>(i)};
    }
  }
}

}  // namespace heteroperf
