// Turning a plan into copies and messages of one rank.
//
// A tensor's part on a rank lies in memory tile by tile. A box is a sub-box of a tile, so copying
// it means contiguous *runs* of bytes in nested loops; where both sides are contiguous the whole
// box is one run. Sums are made in the *arena*, a memory beside source and result, in which every
// summand has a dense block. A message is *packed* from its boxes and *unpacked* into them; a
// message that is a single run is sent from, or received into, its memory directly (in place).
#include "runners/comm/reshard/rank_program.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// A dense row-major box somewhere in a memory.
struct Block {
  Box box;
  std::size_t offset = 0;  ///< elements

  std::size_t step(std::size_t dim) const {
    std::size_t step = 1;
    for (std::size_t inner = dim + 1; inner < box.dims; ++inner)
      step *= static_cast<std::size_t>(box.extent(inner));
    return step;
  }
  std::size_t offset_of(const Box& part) const {
    std::size_t at = offset;
    for (std::size_t dim = 0; dim < box.dims; ++dim)
      at += static_cast<std::size_t>(part.first[dim] - box.first[dim]) * step(dim);
    return at;
  }
};

/// Works out the copy of `box`, which lies in both blocks. Dimensions that are contiguous in both
/// join the run, then loops that continue one another join.
BoxCopy copy_between(const Block& source, const Block& target, const Box& box,
                     std::size_t element_bytes) {
  BoxCopy copy;
  copy.source = source.offset_of(box) * element_bytes;
  copy.target = target.offset_of(box) * element_bytes;
  copy.run = element_bytes;
  std::vector<BoxCopy::Loop> loops;  // innermost first
  for (std::size_t dim = box.dims; dim-- > 0;) {
    const std::size_t count = box.extent(dim);
    if (count == 1) continue;
    const std::size_t source_step = source.step(dim) * element_bytes;
    const std::size_t target_step = target.step(dim) * element_bytes;
    if (loops.empty() && source_step == copy.run && target_step == copy.run) {
      copy.run *= count;
    } else if (!loops.empty() && source_step == loops.back().source_step * loops.back().count &&
               target_step == loops.back().target_step * loops.back().count) {
      loops.back().count *= count;
    } else {
      loops.push_back({count, source_step, target_step});
    }
  }
  copy.loops = loops.size();
  std::copy(loops.rbegin(), loops.rend(), copy.loop.begin());
  return copy;
}

/// The tiles of one rank in its memory.
class TensorMap {
 public:
  TensorMap(const Layout& layout, RankId rank) {
    for (const std::size_t tile : layout.tiles_of(rank)) {
      blocks_.push_back({layout.box(tile), elements_});
      elements_ += static_cast<std::size_t>(blocks_.back().box.count());
    }
  }

  std::size_t elements() const { return elements_; }
  const Block& around(const Box& box) const {
    const auto holds = [&](const Block& block) {
      for (std::size_t dim = 0; dim < box.dims; ++dim)
        if (box.first[dim] < block.box.first[dim] || box.last[dim] > block.box.last[dim])
          return false;
      return true;
    };
    const auto block = std::find_if(blocks_.begin(), blocks_.end(), holds);
    HETEROPERF_EXPECT(block != blocks_.end());
    return *block;
  }

 private:
  std::vector<Block> blocks_;
  std::size_t elements_ = 0;
};

/// Copies runs of one element, for which a call of memcpy each would be slow.
template <std::size_t bytes>
void copy_elements(const BoxCopy::Loop& loop, const std::byte* source, std::byte* target) {
  for (std::size_t i = 0; i < loop.count; ++i)
    std::memcpy(target + i * loop.target_step, source + i * loop.source_step, bytes);
}

void copy_runs(std::size_t run, const BoxCopy::Loop& loop, const std::byte* source,
               std::byte* target) {
  if (run == 2) return copy_elements<2>(loop, source, target);
  if (run == 4) return copy_elements<4>(loop, source, target);
  if (run == 8) return copy_elements<8>(loop, source, target);
  for (std::size_t i = 0; i < loop.count; ++i)
    std::memcpy(target + i * loop.target_step, source + i * loop.source_step, run);
}

void copy_loops(const BoxCopy& copy, std::size_t depth, const std::byte* source,
                std::byte* target) {
  const BoxCopy::Loop& loop = copy.loop[depth];
  if (depth + 1 == copy.loops) return copy_runs(copy.run, loop, source, target);
  for (std::size_t i = 0; i < loop.count; ++i)
    copy_loops(copy, depth + 1, source + i * loop.source_step, target + i * loop.target_step);
}

}  // namespace

void copy_box(const BoxCopy& copy, const std::byte* source, std::byte* target) {
  source += copy.source;
  target += copy.target;
  if (copy.contiguous())
    std::memcpy(target, source, copy.run);
  else
    copy_loops(copy, 0, source, target);
}

/// Works out the offsets of a program while it is made.
class RankProgram::Compiler {
 public:
  Compiler(const ReshardPlan& plan, RankId rank, RankProgram& program)
      : plan_(plan),
        rank_(rank),
        program_(program),
        source_(plan.from, rank),
        result_(plan.to, rank),
        element_bytes_(size_of(plan.config.type)) {}

  void compile() {
    program_.type_ = plan_.config.type;
    program_.source_elements_ = source_.elements();
    program_.result_elements_ = result_.elements();
    for (const LocalCopy& copy : plan_.copies)
      if (copy.rank == rank_)
        program_.kept_.push_back(copy_between(source_.around(copy.box), result_.around(copy.box),
                                              copy.box, element_bytes_));
    for (std::size_t i = 0; i < plan_.sums.size(); ++i)
      if (plan_.sums[i].at == rank_) add_sum(static_cast<std::int32_t>(i));
    for (const ReshardMessage& message : plan_.messages) {
      if (message.from == rank_) stage_of(message).sends.push_back(send(message));
      if (message.to == rank_) stage_of(message).receives.push_back(receive(message));
    }
    program_.arena_bytes_ = arena_elements_ * element_bytes_;
  }

 private:
  Stage& stage_of(const ReshardMessage& message) {
    return program_.stages_[static_cast<std::size_t>(message.stage)];
  }

  /// Gives the summands their blocks.
  void add_sum(std::int32_t number) {
    const Sum& sum = plan_.sums[number];
    Addition& addition = program_.additions_.emplace_back();
    addition.elements = sum.box.count();
    for (const RankId rank : sum.summands) {
      const Block block{sum.box, arena_elements_};
      arena_elements_ += addition.elements;
      if (rank == rank_)
        addition.local = copy_between(source_.around(sum.box), block, sum.box, element_bytes_);
      summand_block_[{number, rank}] = block.offset;
      addition.summands.push_back(block.offset * element_bytes_);
    }
    const Block first{sum.box, summand_block_.at({number, sum.summands.front()})};
    addition.result = copy_between(first, result_.around(sum.box), sum.box, element_bytes_);
  }

  /// Returns the memory and block into which a piece goes that `from` sends.
  std::pair<ReshardPlace, Block> goal(const Piece& piece, RankId from) const {
    if (piece.into_sum == no_sum) return {ReshardPlace::result, result_.around(piece.box)};
    return {ReshardPlace::sum, {piece.box, summand_block_.at({piece.into_sum, from})}};
  }

  Parcel send(const ReshardMessage& message) {
    return parcel_of(message, message.to, [&](const Piece& piece, const Block& in_message) {
      const TensorMap& home = piece.from == ReshardPlace::source ? source_ : result_;
      return Part{piece.from,
                  copy_between(home.around(piece.box), in_message, piece.box, element_bytes_)};
    });
  }

  Parcel receive(const ReshardMessage& message) {
    return parcel_of(message, message.from, [&](const Piece& piece, const Block& in_message) {
      const auto [place, block] = goal(piece, message.from);
      return Part{place, copy_between(in_message, block, piece.box, element_bytes_)};
    });
  }

  /// The pieces of a message lie in it one after another.
  template <class PartOf>
  Parcel parcel_of(const ReshardMessage& message, RankId peer, PartOf part_of_piece) {
    Parcel parcel{peer, message.round, message.size.value(), {}};
    std::size_t offset = 0;
    for (const Piece& piece :
         std::span(plan_.pieces).subspan(message.first_piece, message.pieces)) {
      parcel.parts.push_back(part_of_piece(piece, Block{piece.box, offset}));
      offset += static_cast<std::size_t>(piece.box.count());
    }
    parcel.in_place = parcel.parts.size() == 1 && parcel.parts.front().copy.contiguous();
    if (!parcel.in_place)
      program_.largest_message_ = std::max(program_.largest_message_, parcel.bytes);
    return parcel;
  }

  const ReshardPlan& plan_;
  RankId rank_;
  RankProgram& program_;
  TensorMap source_, result_;
  std::size_t element_bytes_, arena_elements_ = 0;
  std::map<std::pair<std::int32_t, RankId>, std::size_t> summand_block_;  ///< elements
};

RankProgram::RankProgram(const ReshardPlan& plan, RankId rank) {
  Compiler(plan, rank, *this).compile();
}

void RankProgram::copy_kept(const Memories& memories) const {
  for (const BoxCopy& copy : kept_) copy_box(copy, memories.source, memories.result);
}

namespace {

const std::byte* readable(ReshardPlace place, const RankProgram::Memories& memories) {
  return place == ReshardPlace::source ? memories.source : memories.result;
}

std::byte* writable(ReshardPlace place, const RankProgram::Memories& memories) {
  return place == ReshardPlace::result ? memories.result : memories.arena;
}

}  // namespace

void RankProgram::pack(const Parcel& send, const Memories& memories, std::byte* message) {
  for (const Part& part : send.parts) copy_box(part.copy, readable(part.place, memories), message);
}

void RankProgram::unpack(const Parcel& receive, const std::byte* message,
                         const Memories& memories) {
  for (const Part& part : receive.parts)
    copy_box(part.copy, message, writable(part.place, memories));
}

const std::byte* RankProgram::outgoing(const Parcel& send, const Memories& memories) {
  const Part& part = send.parts.front();
  return readable(part.place, memories) + part.copy.source;
}

std::byte* RankProgram::incoming(const Parcel& receive, const Memories& memories) {
  const Part& part = receive.parts.front();
  return writable(part.place, memories) + part.copy.target;
}

void RankProgram::add_up(const Memories& memories) const {
  std::vector<const void*> summands;
  for (const Addition& addition : additions_) {
    if (addition.local) copy_box(*addition.local, memories.source, memories.arena);
    summands.clear();
    for (const std::size_t offset : addition.summands) summands.push_back(memories.arena + offset);
    // Adding may write over its first summand.
    void* const sum = memories.arena + addition.summands.front();
    reduce_in_order(summands, std::span(&sum, 1), addition.elements, type_, Reduction::sum);
    copy_box(addition.result, memories.arena, memories.result);
  }
}

}  // namespace heteroperf
