#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {

/// A box copied between two row-major memories: runs of contiguous bytes in nested loops.
struct BoxCopy {
  struct Loop {
    std::size_t count = 1, source_step = 0, target_step = 0;
  };
  std::size_t source = 0, target = 0;  ///< offsets of the first run, in bytes
  std::size_t run = 0;                 ///< bytes
  std::size_t loops = 0;               ///< outermost first
  std::array<Loop, max_layout_dims> loop{};

  bool contiguous() const { return loops == 0; }
};

/// Copies `copy` from `source` to `target`, which do not overlap.
void copy_box(const BoxCopy& copy, const std::byte* source, std::byte* target);

/// One rank's part of a plan, with all offsets worked out. It sends and receives nothing itself:
/// Resharder does, or the engine's stage boundaries, or a test that plays all ranks.
class RankProgram {
 public:
  /// The memories of a run; `arena` has arena_bytes().
  struct Memories {
    const std::byte* source;
    std::byte* result;
    std::byte* arena;
  };
  /// A copy between one of the memories and a place in a message.
  struct Part {
    ReshardPlace place = ReshardPlace::source;  ///< sum: the arena
    BoxCopy copy;
  };
  struct Parcel {
    RankId peer;
    std::int32_t round = 0;
    std::size_t bytes = 0;
    std::vector<Part> parts;
    bool in_place = false;  ///< one contiguous part: its memory is the message
  };
  struct Stage {
    std::vector<Parcel> sends, receives;  ///< by round
  };

  RankProgram(const ReshardPlan& plan, RankId rank);

  const Stage& stage(std::size_t number) const { return stages_[number]; }
  std::size_t source_elements() const { return source_elements_; }
  std::size_t result_elements() const { return result_elements_; }
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// The size of the largest message that is not in place.
  std::size_t largest_message_bytes() const { return largest_message_; }

  /// Copies the boxes that this rank keeps; comes before all stages.
  void copy_kept(const Memories& memories) const;
  static void pack(const Parcel& send, const Memories& memories, std::byte* message);
  static void unpack(const Parcel& receive, const std::byte* message, const Memories& memories);
  /// Returns the memory of a message that is in place.
  static const std::byte* outgoing(const Parcel& send, const Memories& memories);
  static std::byte* incoming(const Parcel& receive, const Memories& memories);
  /// Makes the sums at the end of the stage `sum`.
  void add_up(const Memories& memories) const;

 private:
  /// A sum of dense blocks in the arena; it is made in the first of them.
  struct Addition {
    std::vector<std::size_t> summands;  ///< offsets
    std::optional<BoxCopy> local;       ///< this rank's summand, from the source tensor
    std::size_t elements = 0;
    BoxCopy result;  ///< the sum, to the result tensor
  };
  class Compiler;

  std::vector<BoxCopy> kept_;
  std::array<Stage, reshard_stages> stages_;
  std::vector<Addition> additions_;
  DataType type_ = DataType::f32;
  std::size_t source_elements_ = 0, result_elements_ = 0, arena_bytes_ = 0, largest_message_ = 0;
};

}  // namespace heteroperf
