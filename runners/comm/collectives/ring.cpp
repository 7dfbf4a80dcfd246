#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

/// Segments on their way at once.
constexpr std::size_t ring_window = 4;

/// Where a rank stands in the ring, and how blocks pass it: in step s of a phase that starts with
/// block `first` every rank sends on what it got in step s - 1.
class RingPlace {
 public:
  explicit RingPlace(Communicator& group)
      : ranks_(static_cast<std::size_t>(group.size())),
        self_(static_cast<std::size_t>(group.rank().value())) {}

  std::size_t ranks() const { return ranks_; }
  std::size_t self() const { return self_; }
  std::size_t steps() const { return ranks_ - 1; }
  RankId left() const { return RankId(static_cast<std::int32_t>(before(1))); }
  RankId right() const { return RankId(static_cast<std::int32_t>((self_ + 1) % ranks_)); }
  /// The rank `distance` places to the left.
  std::size_t before(std::size_t distance) const {
    return (self_ + 2 * ranks_ - distance) % ranks_;
  }

 private:
  std::size_t ranks_, self_;
};

/// Runs a stream of messages from the left neighbour and to the right one. Message i of one rank
/// is message i of its neighbour; the first `lead` depend on nothing, later ones on the arrival of
/// message i - lead.
///
/// A Stream has `messages`, `lead`, `expected` (receives posted at once, at most `window`), and the
/// functions incoming(i), outgoing(i), arrived(i), and before_receive(i, sends), which waits for
/// what still uses the memory of incoming(i). All waits are for earlier messages of the same
/// stream, so no ring of waits can close.
template <class Stream>
void run_ring(Communicator& group, const RingPlace& place, Stream&& stream) {
  TransferRing receives(ring_window), sends(2 * ring_window);
  for (std::size_t i = 0; i < stream.messages; ++i) {
    while (receives.pushed() < std::min(stream.messages, i + stream.expected)) {
      const std::size_t k = receives.pushed();
      stream.before_receive(k, sends);
      receives.push(receive_some(group, stream.incoming(k), place.left(), message_tags::ring));
    }
    while (sends.pushed() < std::min(stream.messages, i + std::min(ring_window, stream.lead))) {
      sends.push(
          send_some(group, stream.outgoing(sends.pushed()), place.right(), message_tags::ring));
    }
    receives.wait(i);
    stream.arrived(i);
  }
  sends.wait_all();
}

/// Reduce-scatter around the ring, then all-gather: in step s of the first, rank r sends block
/// r - s; it then owns block r + 1.
class AllReduceStream {
 public:
  AllReduceStream(const AllReduceCall& call, const PartialSums& sums, std::size_t segment)
      : sums_(sums), place_(call.group) {
    const std::size_t largest = (sums.mine.count / place_.ranks() / 16 + 1) * 16;
    segment_ = segment == 0 ? largest : std::min(segment, largest);
    lead = (largest + segment_ - 1) / segment_;
    messages = 2 * place_.steps() * lead;
    expected = std::min(ring_window, place_.steps() * lead);
    slot_bytes_ = segment_ * size_of(sums.partial.type);
    incoming_ = call.scratch.slot(scratch_slots::incoming, ring_window * slot_bytes_);
  }

  const RingPlace& place() const { return place_; }

  MutableBuffer incoming(std::size_t i) const {
    const Slice part = received(i);
    if (!reduces(i)) return sums_.result.part(part.begin, part.count);
    return {incoming_ + i % ring_window * slot_bytes_, part.count, sums_.partial.type};
  }
  ConstBuffer outgoing(std::size_t i) const {
    const Slice part = sent(i);
    if (i < lead) return sums_.mine.part(part.begin, part.count);
    const MutableBuffer& from = reduces(i) ? sums_.partial : sums_.result;
    return from.part(part.begin, part.count);
  }
  void arrived(std::size_t i) const {
    if (!reduces(i)) return;
    const Slice part = received(i);
    sums_.add_before(incoming(i).data, part.begin, part.count);
    if (step(i) + 1 == place_.steps()) sums_.finish_part(part.begin, part.count);
  }
  /// What is gathered takes the place of the same segment's partial sum, sent as many messages
  /// earlier as the first phase has.
  void before_receive(std::size_t i, TransferRing& sends) const {
    if (!reduces(i)) sends.wait(i - place_.steps() * lead);
  }

  std::size_t messages = 0, lead = 1, expected = 1;

 private:
  std::size_t step(std::size_t i) const { return i / lead; }
  bool reduces(std::size_t i) const { return step(i) < place_.steps(); }
  Slice part_of(std::size_t block, std::size_t i) const {
    return segment_of(block_of(sums_.mine.count, block, place_.ranks()), i % lead, segment_);
  }
  Slice received(std::size_t i) const {
    const std::size_t s = step(i);
    return part_of(place_.before(reduces(i) ? s + 1 : s - place_.steps()), i);
  }
  Slice sent(std::size_t i) const {
    const std::size_t s = step(i);
    return part_of(place_.before(reduces(i) ? s : s - place_.steps() + place_.ranks() - 1), i);
  }

  const PartialSums& sums_;
  RingPlace place_;
  std::size_t segment_ = 1, slot_bytes_ = 0;
  std::byte* incoming_ = nullptr;
};

/// Blocks of given sizes in one vector.
class CountedBlocks {
 public:
  CountedBlocks(Counts counts, std::size_t segment) : counts_(counts), segment_(segment) {}

  Slice segment(std::size_t block, std::size_t index) const {
    return segment_of(block_of(counts_, block), index, segment_);
  }
  /// Of the largest block.
  std::size_t segments() const {
    return std::max<std::size_t>(1, (largest_of(counts_) + segment_ - 1) / segment_);
  }

 private:
  Counts counts_;
  std::size_t segment_;
};

/// In step s rank r sends block r - s.
class AllGatherStream {
 public:
  AllGatherStream(const RingCall& call, MutableBuffer all)
      : place_(call.group),
        all_(all),
        blocks_(call.counts, std::max<std::size_t>(1, call.segment_bytes / size_of(all.type))),
        lead(blocks_.segments()),
        messages(place_.steps() * lead) {}

  const RingPlace& place() const { return place_; }
  MutableBuffer incoming(std::size_t i) const { return part(i / lead + 1, i); }
  ConstBuffer outgoing(std::size_t i) const { return part(i / lead, i); }
  void arrived(std::size_t) const {}
  void before_receive(std::size_t, TransferRing&) const {}

 private:
  MutableBuffer part(std::size_t distance, std::size_t i) const {
    const Slice elements = blocks_.segment(place_.before(distance), i % lead);
    return all_.part(elements.begin, elements.count);
  }

  RingPlace place_;
  MutableBuffer all_;
  CountedBlocks blocks_;

 public:
  std::size_t lead, messages, expected = ring_window;
};

/// In step s rank r sends block r - s - 1, of which it then knows the sum over s + 1 ranks, and in
/// the end holds block r. Partial sums rest in scratch memory between arrival and departure.
class ReduceScatterStream {
 public:
  ReduceScatterStream(const RingCall& call, const PartialSums& sums)
      : place_(call.group),
        sums_(sums),
        segment_(std::max<std::size_t>(1, call.segment_bytes / size_of(sums.partial.type))),
        blocks_(call.counts, segment_),
        lead(blocks_.segments()),
        messages(place_.steps() * lead),
        slots_(lead + 2 * ring_window),
        slot_bytes_(segment_ * size_of(sums.partial.type)),
        memory_(call.scratch.slot(scratch_slots::incoming, slots_ * slot_bytes_)) {}

  const RingPlace& place() const { return place_; }
  MutableBuffer incoming(std::size_t i) const {
    return {slot(i), received(i).count, sums_.partial.type};
  }
  ConstBuffer outgoing(std::size_t i) const {
    const Slice part = blocks_.segment(place_.before(i / lead + 1), i % lead);
    if (i < lead) return sums_.mine.part(part.begin, part.count);
    return {slot(i - lead), part.count, sums_.partial.type};
  }
  void arrived(std::size_t i) const {
    const Slice part = received(i);
    const ConstBuffer theirs(slot(i), part.count, sums_.partial.type);
    const ConstBuffer mine = sums_.mine.part(part.begin, part.count);
    combine(theirs, mine, slot(i), sums_.reduction);
    if (i / lead + 1 < place_.steps()) return;
    finish(theirs, sums_.result.part(i % lead * segment_, part.count), sums_.reduction,
           sums_.ranks);
  }
  void before_receive(std::size_t i, TransferRing& sends) const {
    if (i >= slots_) sends.wait(i - slots_ + lead);
  }

 private:
  std::byte* slot(std::size_t i) const { return memory_ + i % slots_ * slot_bytes_; }
  Slice received(std::size_t i) const {
    return blocks_.segment(place_.before(i / lead + 2), i % lead);
  }

  RingPlace place_;
  const PartialSums& sums_;
  std::size_t segment_;
  CountedBlocks blocks_;

 public:
  std::size_t lead, messages, expected = ring_window;

 private:
  std::size_t slots_, slot_bytes_;
  std::byte* memory_;
};

}  // namespace

void all_reduce_ring(const AllReduceCall& call, const PartialSums& sums, std::size_t segment) {
  const AllReduceStream stream(call, sums, segment);
  run_ring(call.group, stream.place(), stream);
}

void all_gather_ring(const RingCall& call, MutableBuffer all) {
  const AllGatherStream stream(call, all);
  run_ring(call.group, stream.place(), stream);
}

void reduce_scatter_ring(const RingCall& call, const PartialSums& sums) {
  const ReduceScatterStream stream(call, sums);
  run_ring(call.group, stream.place(), stream);
}

}  // namespace heteroperf
