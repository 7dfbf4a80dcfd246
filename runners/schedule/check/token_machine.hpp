#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/ir/grouped_lists.hpp"

namespace heteroperf {

/// Runs streams of steps without times, to see whether they end at all. A stream stands at its
/// first step that has not ended. A step is an *event*, which several streams may share: it ends
/// once every stream that has it stands at it and its prerequisites ended. The order of the calls
/// is append(), require() and forbid() in any order, then run() once, then shortest_cycle().
///
/// The clocks of simulate/ do not use it: their ranks pass instructions one by one and leave times
/// behind, while here several streams take a step at one moment, and nothing but the place where
/// they stop is asked for.
class TokenMachine {
 public:
  struct Place {
    std::int32_t rank = -1, index = -1;
  };

  TokenMachine(std::int32_t streams, std::int32_t events)
      : streams_(streams), missing_(events, 0) {}

  /// Adds the next step of a stream. An event that stands twice in one stream never ends.
  void append(std::int32_t stream, std::int32_t event, Place place) {
    appended_.push_back({stream, event, place});
    ++missing_[event];
  }
  /// The event cannot end before its prerequisite has ended.
  void require(std::int32_t event, std::int32_t prerequisite) {
    requirements_.push_back({prerequisite, event});
    ++missing_[event];
  }
  /// The event never ends.
  void forbid(std::int32_t event) {
    if (missing_[event] < never) missing_[event] += never;
  }

  /// Runs every stream as far as it gets. The result is true where all streams end.
  bool run();

  /// A stream that did not end, as a member of a cycle: its place, and the rank it waits for (−1
  /// where it waits for nobody, and there is no cycle).
  struct Standing {
    Place place;
    std::int32_t waits_for_rank = -1;
  };
  /// The shortest cycle among the places where the streams stand, or one stream that waits for
  /// nobody. It must follow a run() that gave false.
  std::vector<Standing> shortest_cycle() const;

 private:
  static constexpr std::int32_t never = 1 << 30;
  struct Item {
    std::int32_t stream, event;
    Place place;
  };
  struct Requirement {
    std::int32_t prerequisite, event;
  };
  class Waiting;

  void arrive(std::int32_t stream);
  void end(std::int32_t event);

  std::int32_t streams_;
  std::vector<std::int32_t> missing_;  // [event]: arrivals and prerequisites to come
  std::vector<Item> appended_;
  std::vector<Requirement> requirements_;
  // Once it runs:
  GroupedLists<Item> items_;                 // by stream
  std::vector<std::int32_t> at_;             // [stream]: into items_
  GroupedLists<std::int32_t> dependents_;    // events by prerequisite
  std::vector<std::int32_t> first_waiting_;  // [event]: a stream that stands there
  std::vector<std::int32_t> next_waiting_;   // [stream]: another at the same event
  std::vector<std::int32_t> ready_;
};

}  // namespace heteroperf
