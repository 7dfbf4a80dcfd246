#pragma once

#include <cstdint>
#include <vector>

namespace heteroperf {

/// Streams of steps that run without times. A stream stands at its first step that has not ended; a
/// step (an event) ends once every stream that has it stands at it and its prerequisites ended.
class TokenMachine {
 public:
  struct Place {
    std::int32_t rank = -1, index = -1;
  };

  TokenMachine(std::int32_t streams, std::int32_t events)
      : streams_(streams), missing_(static_cast<std::size_t>(events), 0) {}

  /// Next step of a stream. One event may stand in several streams, and twice in one: never ends.
  void append(std::int32_t stream, std::int32_t event, Place place) {
    items_.push_back({stream, event, place});
    ++missing_[event];
  }
  void require(std::int32_t event, std::int32_t prerequisite) {
    requirements_.push_back({prerequisite, event});
    ++missing_[event];
  }
  /// The event never ends.
  void forbid(std::int32_t event) {
    if (missing_[event] < never) missing_[event] += never;
  }

  /// Whether all streams end.
  bool run();

  /// A stream that does not, in a cycle of them: where it stands, and the rank it waits for (−1:
  /// for nobody, and it is no cycle). After a run() that gave false.
  struct Standing {
    Place place;
    std::int32_t waits_for_rank = -1;
  };
  /// The shortest cycle among streams where they stand; else one that waits for nobody.
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

  void sort_items();
  void sort_requirements();
  void arrive(std::int32_t stream);
  void end(std::int32_t event);

  std::int32_t streams_;
  std::vector<std::int32_t> missing_;        // [event]
  std::vector<Item> items_;                  // by stream once it runs
  std::vector<Requirement> requirements_;    // by prerequisite once it runs
  std::vector<std::int32_t> first_item_;     // [stream], and the total
  std::vector<std::int32_t> at_;             // [stream]: into items_
  std::vector<std::int32_t> dependents_;     // [event], and the total: into requirements_
  std::vector<std::int32_t> first_waiting_;  // [event]: a stream that stands there
  std::vector<std::int32_t> next_waiting_;   // [stream]: another at the same event
  std::vector<std::int32_t> ready_;
};

}  // namespace heteroperf
