#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Every collective of a lowered schedule with its members and, once a simulation knows them, its
/// times. Its members are the ranks whose programs name it; where a program names it several times
/// (for several segments of its rank), only the last place counts.
class CollectiveTable {
 public:
  static constexpr double unknown = std::numeric_limits<double>::infinity();

  struct Place {
    std::int32_t rank = -1, index = -1;
  };
  struct Collective {
    double time = 0;               ///< it takes
    double start = 0;              ///< when the last member so far came
    double end = unknown;          ///< known once all are there
    Place latest;                  ///< the member that came last
    std::int32_t missing = 0;      ///< members still to come
    std::int32_t first_place = 0;  ///< into places()
    std::int32_t members = 0;
  };

  /// Time: latency · ⌈log2(members)⌉ + the interaction's cost, or `reduction_time`.
  /// Throws UserError for collectives that the graph does not have at their rank.
  CollectiveTable(const Schedule& schedule, const CollectiveIndex& index, double reduction_time);

  Collective& operator[](std::int32_t id) { return collectives_[id]; }
  /// The collectives that a program names, in its order; −1 where a later place counts.
  std::span<const std::int32_t> of(int rank) const { return of_rank_[rank]; }
  /// The members' places, by rank.
  std::span<const Place> places(std::int32_t id) const {
    const Collective& c = collectives_[id];
    return {places_.data() + c.first_place, static_cast<std::size_t>(c.members)};
  }

 private:
  void read(const Schedule& schedule, const CollectiveIndex& index, double reduction_time);
  void gather_members(const Schedule& schedule);

  std::vector<Collective> collectives_;
  std::vector<std::vector<std::int32_t>> of_rank_;
  std::vector<Place> places_;
};

}  // namespace heteroperf
