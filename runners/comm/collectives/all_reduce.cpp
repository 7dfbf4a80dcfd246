// Recursive doubling and Rabenseifner's all-reduce (Thakur, Rabenseifner, Gropp, IJHPCA 19(1),
// 2005), and the choice of a flat algorithm by name.
//
// Both need a power of two of ranks. With p ranks, of which q = 2^k is the next lower power of two,
// the first 2·(p - q) ranks are *folded* in pairs: the even one hands its vector to the odd one,
// which speaks for both, and gets the result from it in the end. The q ranks that go on are the
// *active* ranks and are numbered 0 ... q - 1.
//
// Recursive doubling: in step s each active rank exchanges the whole vector with the rank whose
// number differs in bit s, and adds. After k steps all have the sum. It needs the fewest steps, so
// it is best for short vectors.
//
// Rabenseifner's algorithm cuts the vector into q blocks. *Halving*: in step s a rank keeps one
// half of the blocks that it still cares for, sends the other half to its partner, and adds the
// half that arrives; after k steps each rank has the sum of one block. *Gathering* takes the same
// steps backwards and doubles the range of finished blocks each time.
#include "runners/comm/collectives/all_reduce.hpp"

#include <array>
#include <bit>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

/// This rank's place among the active ranks.
class Folding {
 public:
  Folding(int self, int ranks)
      : self_(self),
        active_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        extra_(ranks - active_) {
    if (!folded()) index_ = self_ - extra_;
    if (folded() && self_ % 2 == 1) index_ = self_ / 2;
  }

  int active() const { return active_; }
  bool takes_part() const { return index_ >= 0; }
  int index() const { return index_; }
  /// The rank with which this one exchanges in `step`: their numbers differ in that bit.
  RankId partner(int step) const {
    const int index = index_ ^ 1 << step;
    return RankId(index < extra_ ? 2 * index + 1 : index + extra_);
  }
  /// Returns true when the partner of this step has lower ranks behind it, so that its values are
  /// the first operand.
  bool partner_is_lower(int step) const { return (index_ >> step & 1) != 0; }

  /// Adds the vectors of folded partners. Returns this rank's summand for the steps that follow:
  /// `sums.partial` where a partner's vector was added to it, otherwise still `sums.input`.
  ConstBuffer fold(const AllReduceCall& call, const PartialSums& sums) const {
    if (!folded()) return sums.input;
    if (!takes_part()) {
      call.group.send(sums.input, RankId(self_ + 1), message_tags::fold);
      return sums.input;
    }
    const MutableBuffer arrived(call.scratch.slot(scratch_slots::incoming, sums.partial.bytes()),
                                sums.input.count, sums.partial.type);
    call.group.receive(arrived, RankId(self_ - 1), message_tags::fold);
    sums.add_before(arrived.data, 0, arrived.count);
    return sums.partial;
  }
  /// Hands the result to the folded partner, or receives it there.
  void unfold(const AllReduceCall& call) const {
    if (!folded()) return;
    if (takes_part()) {
      call.group.send(call.result, RankId(self_ - 1), message_tags::unfold);
    } else {
      call.group.receive(call.result, RankId(self_ + 1), message_tags::unfold);
    }
  }

 private:
  bool folded() const { return self_ < 2 * extra_; }

  int self_, active_ = 1, extra_ = 0, index_ = -1;
};

/// Receives are posted one step ahead, so that a fast partner finds its receiver ready.
void recursive_doubling(const AllReduceCall& call, const PartialSums& sums, const Folding& folding,
                        ConstBuffer current) {
  std::byte* const incoming = call.scratch.slot(scratch_slots::incoming, 2 * sums.partial.bytes());
  const auto arrived = [&](int step) {
    return MutableBuffer(incoming + static_cast<std::size_t>(step % 2) * sums.partial.bytes(),
                         sums.partial.count, sums.partial.type);
  };
  const auto expect = [&](int step) {
    return 1 << step < folding.active()
               ? call.group.start_receive(arrived(step), folding.partner(step),
                                          message_tags::doubling)
               : nullptr;
  };
  std::unique_ptr<Transfer> arriving = expect(0);
  for (int step = 0; 1 << step < folding.active(); ++step) {
    auto next = expect(step + 1);
    const auto sent = call.group.start_send(current, folding.partner(step), message_tags::doubling);
    arriving->wait();
    sent->wait();
    const bool lower = folding.partner_is_lower(step);
    combine(lower ? arrived(step) : current, lower ? current : arrived(step), sums.partial.data,
            sums.reduction);
    current = sums.partial;
    arriving = std::move(next);
  }
  sums.finish_part(0, sums.input.count);
}

/// Blocks [first, last) of a vector in as many blocks as there are active ranks.
struct BlockRange {
  int first, last;

  BlockRange half(bool upper) const {
    const int middle = (first + last) / 2;
    return upper ? BlockRange{middle, last} : BlockRange{first, middle};
  }
};

/// Rabenseifner's algorithm on one active rank. The first and largest exchange is with the nearest
/// rank, which most often has the fastest link.
class Halving {
 public:
  Halving(const AllReduceCall& call, const PartialSums& sums, const Folding& folding,
          ConstBuffer current)
      : call_(call), sums_(sums), folding_(folding), current_(current) {
    while (1 << steps_ < folding_.active()) ++steps_;
    range_[0] = {0, folding_.active()};
    for (int step = 0; step < steps_; ++step) range_[step + 1] = range_[step].half(keeps(step));
  }

  void reduce_scatter() {
    std::array<std::unique_ptr<Transfer>, max_steps> arriving;
    // About n elements, but more where few elements make uneven blocks.
    std::size_t incoming_count = 0;
    for (int step = 0; step < steps_; ++step) incoming_count += kept(step).count;
    std::byte* incoming =
        call_.scratch.slot(scratch_slots::incoming, incoming_count * size_of(sums_.partial.type));
    std::array<std::byte*, max_steps> places{};
    for (int step = 0; step < steps_; ++step) {
      places[step] = incoming;
      const MutableBuffer arrived(incoming, kept(step).count, sums_.partial.type);
      arriving[step] =
          receive_some(call_.group, arrived, folding_.partner(step), message_tags::halving);
      incoming += arrived.bytes();
    }
    for (int step = 0; step < steps_; ++step) {
      const auto sent = send_some(call_.group, part_of(current_, given(step)),
                                  folding_.partner(step), message_tags::halving);
      if (arriving[step]) arriving[step]->wait();
      add(places[step], step);
      if (sent) sent->wait();
      current_ = sums_.partial;
    }
  }

  void all_gather() {
    std::array<std::unique_ptr<Transfer>, max_steps> arriving;
    for (int step = steps_ - 1; step >= 0; --step) {
      arriving[step] = receive_some(call_.group, part_of(sums_.result, given(step)),
                                    folding_.partner(step), message_tags::gathering);
    }
    const Slice block = elements(range_[steps_]);
    sums_.finish_part(block.begin, block.count);
    TransferRing sends(max_steps);
    for (int step = steps_ - 1; step >= 0; --step) {
      sends.push(send_some(call_.group, part_of(sums_.result, kept(step)), folding_.partner(step),
                           message_tags::gathering));
      if (arriving[step]) arriving[step]->wait();
    }
    sends.wait_all();
  }

 private:
  static constexpr int max_steps = 31;

  /// Returns true when this rank keeps the upper half of its blocks in `step`.
  bool keeps(int step) const { return folding_.partner_is_lower(step); }
  Slice kept(int step) const { return elements(range_[step + 1]); }
  Slice given(int step) const { return elements(range_[step].half(!keeps(step))); }
  Slice elements(BlockRange range) const {
    const std::size_t blocks = folding_.active();
    const auto first = even_block(sums_.input.count, range.first, blocks);
    const auto last =
        even_block(sums_.input.count, static_cast<std::size_t>(range.last - 1), blocks);
    return {first.begin, last.end() - first.begin};
  }
  void add(const std::byte* incoming, int step) {
    const Slice part = kept(step);
    const ConstBuffer arrived(incoming, part.count, sums_.partial.type);
    const ConstBuffer local = part_of(current_, part);
    const bool lower = folding_.partner_is_lower(step);
    combine(lower ? arrived : local, lower ? local : arrived, part_of(sums_.partial, part).data,
            sums_.reduction);
  }

  const AllReduceCall& call_;
  const PartialSums& sums_;
  const Folding& folding_;
  ConstBuffer current_;  ///< this rank's summand; its kept part holds the sum so far
  int steps_ = 0;
  std::array<BlockRange, max_steps + 1> range_{};  ///< before each step, and after the last
};

/// Runs `work` among the active ranks, between folding and unfolding.
template <class Work>
void run_folded(const AllReduceCall& call, const PartialSums& sums, Work work) {
  const Folding folding(call.group.rank().value(), call.group.size());
  const ConstBuffer current = folding.fold(call, sums);
  if (folding.takes_part()) work(folding, current);
  folding.unfold(call);
}

}  // namespace

void all_reduce(const AllReduceCall& call, Algorithm algorithm) {
  HETEROPERF_EXPECT(call.input.count == call.result.count && call.input.type == call.result.type);
  HETEROPERF_EXPECT(call.segment_bytes > 0);
  if (call.input.count == 0) return;
  if (call.group.size() == 1) return convert(call.input, call.result);
  const PartialSums sums =
      make_partial_sums(call.input, call.result, call.reduction, call.group.size(), call.scratch);
  const std::size_t segment = elements_in(call.segment_bytes, sums.partial.type);
  switch (algorithm) {
    case Algorithm::recursive_doubling:
      return run_folded(call, sums, [&](const Folding& folding, ConstBuffer current) {
        recursive_doubling(call, sums, folding, current);
      });
    case Algorithm::rabenseifner:
      return run_folded(call, sums, [&](const Folding& folding, ConstBuffer current) {
        Halving halving(call, sums, folding, current);
        halving.reduce_scatter();
        halving.all_gather();
      });
    case Algorithm::ring:
      return all_reduce_ring(call, sums, 0);
    case Algorithm::segmented_ring:
      return all_reduce_ring(call, sums, segment);
    case Algorithm::tree:
      return all_reduce_tree(call, sums, segment);
    case Algorithm::native:
    case Algorithm::leader:
    case Algorithm::split_rail:
      break;
  }
  HETEROPERF_EXPECT(!"a flat algorithm");
}

}  // namespace heteroperf
