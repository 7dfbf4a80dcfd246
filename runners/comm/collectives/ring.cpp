// Collectives around a ring of ranks: each rank receives from its left neighbour (rank - 1) and
// sends to its right one (rank + 1), so every link carries one stream in one direction, and every
// rank sends (p - 1)/p of the vector per phase, which no algorithm can better.
//
// The vector consists of p *blocks*, one per rank. In *step* s of a phase every rank sends the
// block that it received in step s - 1, so a block travels once around in p - 1 steps. In a
// reduce-scatter a rank adds its own values to a block before it passes the block on; at the end of
// its journey the block is summed. In an all-gather finished blocks travel. An all-reduce is the
// first phase followed by the second.
//
// A block is sent as *segments*, and a segment is passed on as soon as it has arrived: while one is
// summed, those behind it travel. Message number i carries segment i mod S of step i / S, where S
// is the number of segments of a block; empty segments are left out on both sides. Message i
// depends on the arrival of message i - S; the first S messages depend on nothing. Up to
// ring_window messages are under way at once. All waits are for earlier messages of the same
// stream, so no circle of ranks can wait for each other.
#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t ring_window = 4;

/// One rank's place in the ring and the segments of its messages. A collective derives from it and
/// adds the memory of messages: incoming(i) and outgoing(i); arrived(i), called when message i is
/// there; and before_receive(i, sends), which waits for sends that still read the memory of
/// incoming(i).
class Ring {
 public:
  /// `counts` are the sizes of the blocks; without any, `count` elements are cut evenly. `segment`
  /// is the most elements of a message, 0 for a whole block. `first` says which block a rank sends
  /// in step 0: the one of the rank so many places to its left.
  Ring(Communicator& group, Counts counts, std::size_t count, std::size_t segment,
       std::size_t first)
      : group_(group),
        ranks_(group.size()),
        self_(group.rank().index()),
        counts_(counts),
        count_(count),
        first_(first) {
    const std::size_t largest =
        counts.empty() ? (count / ranks_ / 16 + 1) * 16 : largest_of(counts);
    segment_ = segment == 0 ? largest : std::min(segment, largest);
    segments_ = (largest + segment_ - 1) / segment_;
  }

 protected:
  /// The number of messages of one phase.
  std::size_t phase() const { return (ranks_ - 1) * segments_; }
  Slice sent(std::size_t i) const { return part(i / segments_, i); }
  Slice received(std::size_t i) const { return part(i / segments_ + 1, i); }

  std::size_t segment() const { return segment_; }
  std::size_t segments() const { return segments_; }

  /// Sends and receives `messages` messages, and posts up to `posted` receives ahead.
  template <class Collective>
  void run(const Collective& collective, std::size_t messages, std::size_t posted = ring_window) {
    const RankId left(static_cast<std::int32_t>((self_ + ranks_ - 1) % ranks_));
    const RankId right(static_cast<std::int32_t>((self_ + 1) % ranks_));
    TransferRing receives(ring_window), sends(2 * ring_window);
    for (std::size_t i = 0; i < messages; ++i) {
      while (receives.pushed() < std::min(messages, i + posted)) {
        const std::size_t k = receives.pushed();
        collective.before_receive(k, sends);
        receives.push(receive_some(group_, collective.incoming(k), left, message_tags::ring));
      }
      while (sends.pushed() < std::min(messages, i + std::min(ring_window, segments_))) {
        sends.push(
            send_some(group_, collective.outgoing(sends.pushed()), right, message_tags::ring));
      }
      receives.wait(i);
      collective.arrived(i);
    }
    sends.wait_all();
  }

 private:
  Slice part(std::size_t step, std::size_t i) const {
    const std::size_t block = (self_ + 2 * ranks_ - step - first_) % ranks_;
    const Slice whole =
        counts_.empty() ? even_block(count_, block, ranks_) : block_of(counts_, block);
    return segment_of(whole, i % segments_, segment_);
  }

  Communicator& group_;
  std::size_t ranks_, self_;
  Counts counts_;
  std::size_t count_, first_, segment_ = 1, segments_ = 1;
};

/// In step s of the first phase rank r sends block r - s; it then owns block r + 1, with which the
/// second phase begins. So one numbering of blocks serves both phases.
class RingAllReduce : private Ring {
 public:
  RingAllReduce(const AllReduceCall& call, const PartialSums& sums, std::size_t segment)
      : Ring(call.group, {}, sums.input.count, segment, 0),
        sums_(sums),
        slot_bytes_(Ring::segment() * size_of(sums.partial.type)),
        slots_(call.scratch.slot(scratch_slots::incoming, ring_window * slot_bytes_)) {}

  void run() { Ring::run(*this, 2 * phase(), std::min(ring_window, phase())); }

  MutableBuffer incoming(std::size_t i) const {
    const Slice part = received(i);
    if (!reduces(i)) return part_of(sums_.result, part);
    return {slots_ + i % ring_window * slot_bytes_, part.count, sums_.partial.type};
  }
  ConstBuffer outgoing(std::size_t i) const {
    if (i < segments()) return part_of(sums_.input, sent(i));
    return part_of(reduces(i) ? sums_.partial : sums_.result, sent(i));
  }
  void arrived(std::size_t i) const {
    if (!reduces(i)) return;
    const Slice part = received(i);
    sums_.add_before(incoming(i).data, part.begin, part.count);
    if (i + segments() >= phase()) sums_.finish_part(part.begin, part.count);
  }
  /// A gathered segment overwrites the partial sum that this rank sent one phase earlier.
  void before_receive(std::size_t i, TransferRing& sends) const {
    if (!reduces(i)) sends.wait(i - phase());
  }

 private:
  bool reduces(std::size_t i) const { return i < phase(); }

  const PartialSums& sums_;
  std::size_t slot_bytes_;
  std::byte* slots_;
};

/// In step s rank r sends block r - s.
class RingAllGather : private Ring {
 public:
  RingAllGather(Communicator& group, Counts counts, MutableBuffer all, std::size_t segment_bytes)
      : Ring(group, counts, all.count, elements_in(segment_bytes, all.type), 0), all_(all) {}

  void run() { Ring::run(*this, phase()); }

  MutableBuffer incoming(std::size_t i) const { return part_of(all_, received(i)); }
  ConstBuffer outgoing(std::size_t i) const { return part_of(all_, sent(i)); }
  void arrived(std::size_t) const {}
  void before_receive(std::size_t, TransferRing&) const {}

 private:
  MutableBuffer all_;
};

/// In step s rank r sends block r - s - 1, whose sum then covers s + 1 ranks; in the end it holds
/// block r. A partial sum waits in a slot of scratch memory between arrival and departure.
class RingReduceScatter : private Ring {
 public:
  RingReduceScatter(Communicator& group, Counts counts, const PartialSums& sums,
                    std::size_t segment_bytes, Scratch& scratch)
      : Ring(group, counts, sums.input.count, elements_in(segment_bytes, sums.partial.type), 1),
        sums_(sums),
        slots_(segments() + 2 * ring_window),
        slot_bytes_(segment() * size_of(sums.partial.type)),
        memory_(scratch.slot(scratch_slots::incoming, slots_ * slot_bytes_)) {}

  void run() { Ring::run(*this, phase()); }

  MutableBuffer incoming(std::size_t i) const {
    return {slot(i), received(i).count, sums_.partial.type};
  }
  ConstBuffer outgoing(std::size_t i) const {
    const Slice part = sent(i);
    if (i < segments()) return part_of(sums_.input, part);
    return {slot(i - segments()), part.count, sums_.partial.type};
  }
  void arrived(std::size_t i) const {
    const ConstBuffer sum = incoming(i);
    combine(sum, part_of(sums_.input, received(i)), slot(i), sums_.reduction);
    if (i + segments() < phase()) return;
    finish(sum, sums_.result.part(i % segments() * segment(), sum.count), sums_.reduction,
           sums_.ranks);
  }
  void before_receive(std::size_t i, TransferRing& sends) const {
    if (i >= slots_) sends.wait(i - slots_ + segments());
  }

 private:
  std::byte* slot(std::size_t i) const { return memory_ + i % slots_ * slot_bytes_; }

  const PartialSums& sums_;
  std::size_t slots_, slot_bytes_;
  std::byte* memory_;
};

}  // namespace

void all_reduce_ring(const AllReduceCall& call, const PartialSums& sums, std::size_t segment) {
  RingAllReduce(call, sums, segment).run();
}

void all_gather_ring(Communicator& group, Counts counts, MutableBuffer all,
                     std::size_t segment_bytes) {
  RingAllGather(group, counts, all, segment_bytes).run();
}

void reduce_scatter_ring(Communicator& group, Counts counts, const PartialSums& sums,
                         std::size_t segment_bytes, Scratch& scratch) {
  RingReduceScatter(group, counts, sums, segment_bytes, scratch).run();
}

}  // namespace heteroperf
