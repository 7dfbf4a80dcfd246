#include <array>

#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {
namespace {

/// Blocks [first, last) of a vector in as many blocks as there are active ranks.
struct BlockRange {
  int first, last;

  BlockRange half(int which) const {
    const int middle = (first + last) / 2;
    return which == 0 ? BlockRange{first, middle} : BlockRange{middle, last};
  }
};

/// Rabenseifner's all-reduce of one rank that takes part.
class Halving {
 public:
  Halving(const AllReduceCall& call, const PartialSums& sums, const Folding& folding,
          ConstBuffer current)
      : call_(call), sums_(sums), folding_(folding), current_(current) {
    while (1 << steps_ < folding_.active()) ++steps_;
    range_[0] = {0, folding_.active()};
    for (int step = 0; step < steps_; ++step) range_[step + 1] = range_[step].half(side(step));
  }

  void reduce_scatter() {
    std::array<std::unique_ptr<Transfer>, max_steps> arriving;
    // About n, but more where few elements make uneven blocks.
    std::size_t incoming_count = 0;
    for (int step = 0; step < steps_; ++step) incoming_count += elements(range_[step + 1]).count;
    std::byte* incoming =
        call_.scratch.slot(scratch_slots::incoming, incoming_count * size_of(sums_.partial.type));
    std::array<std::byte*, max_steps> places{};
    for (int step = 0; step < steps_; ++step) {
      const Slice kept = elements(range_[step + 1]);
      places[step] = incoming;
      const MutableBuffer theirs(incoming, kept.count, sums_.partial.type);
      arriving[step] = receive_some(call_.group, theirs, partner(step), message_tags::halving);
      incoming += theirs.bytes();
    }
    for (int step = 0; step < steps_; ++step) {
      const Slice given = elements(range_[step].half(1 - side(step)));
      const auto sent = send_some(call_.group, current_.part(given.begin, given.count),
                                  partner(step), message_tags::halving);
      if (arriving[step]) arriving[step]->wait();
      add(places[step], elements(range_[step + 1]), step);
      if (sent) sent->wait();
      current_ = sums_.partial;
    }
  }

  void all_gather() {
    std::array<std::unique_ptr<Transfer>, max_steps> arriving;
    for (int step = steps_ - 1; step >= 0; --step) {
      const Slice theirs = elements(range_[step].half(1 - side(step)));
      arriving[step] = receive_some(call_.group, sums_.result.part(theirs.begin, theirs.count),
                                    partner(step), message_tags::gathering);
    }
    const Slice own = elements(range_[steps_]);
    sums_.finish_part(own.begin, own.count);
    TransferRing sends(max_steps);
    for (int step = steps_ - 1; step >= 0; --step) {
      const Slice known = elements(range_[step + 1]);
      sends.push(send_some(call_.group, sums_.result.part(known.begin, known.count), partner(step),
                           message_tags::gathering));
      if (arriving[step]) arriving[step]->wait();
    }
    sends.wait_all();
  }

 private:
  static constexpr int max_steps = 31;

  /// Which half this rank keeps. The first and largest exchange is with the nearest rank, which
  /// most often has the fastest link.
  int side(int step) const { return folding_.index() >> step & 1; }
  RankId partner(int step) const { return folding_.rank_of(folding_.index() ^ 1 << step); }
  Slice elements(BlockRange range) const {
    const auto blocks = static_cast<std::size_t>(folding_.active());
    const auto first = block_of(sums_.mine.count, static_cast<std::size_t>(range.first), blocks);
    const auto last = block_of(sums_.mine.count, static_cast<std::size_t>(range.last - 1), blocks);
    return {first.begin, last.end() - first.begin};
  }
  void add(const std::byte* incoming, Slice part, int step) {
    const ConstBuffer theirs(incoming, part.count, sums_.partial.type);
    const ConstBuffer mine = current_.part(part.begin, part.count);
    const bool they_are_lower = side(step) == 1;
    combine(they_are_lower ? theirs : mine, they_are_lower ? mine : theirs,
            sums_.partial.part(part.begin, part.count).data, sums_.reduction);
  }

  const AllReduceCall& call_;
  const PartialSums& sums_;
  const Folding& folding_;
  ConstBuffer current_;  ///< what this rank speaks for; where it keeps a part, already summed
  int steps_ = 0;
  std::array<BlockRange, max_steps + 1> range_{};
};

}  // namespace

void all_reduce_rabenseifner(const AllReduceCall& call, const PartialSums& sums) {
  const Folding folding(call.group.rank().value(), call.group.size());
  const ConstBuffer current = folding.fold(call, sums) ? sums.partial : sums.mine;
  if (folding.takes_part()) {
    Halving halving(call, sums, folding, current);
    halving.reduce_scatter();
    halving.all_gather();
  }
  folding.unfold(call);
}

}  // namespace heteroperf
