#include "runners/comm/collectives/all_reduce.hpp"

#include <bit>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/transfer_ring.hpp"

namespace heteroperf {

Folding::Folding(int self, int ranks)
    : self_(self),
      active_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
      extra_(ranks - active_) {
  if (!folded()) index_ = self_ - extra_;
  if (folded() && self_ % 2 == 1) index_ = self_ / 2;
}

RankId Folding::rank_of(int index) const {
  return RankId(index < extra_ ? 2 * index + 1 : index + extra_);
}

bool Folding::fold(const AllReduceCall& call, const PartialSums& sums) const {
  if (!folded()) return false;
  if (!takes_part()) {
    call.group.send(sums.mine, RankId(self_ + 1), message_tags::fold);
    return false;
  }
  const std::size_t count = sums.mine.count;
  const MutableBuffer theirs(call.scratch.slot(scratch_slots::incoming, sums.partial.bytes()),
                             count, sums.partial.type);
  call.group.receive(theirs, RankId(self_ - 1), message_tags::fold);
  sums.add_before(theirs.data, 0, count);
  return true;
}

void Folding::unfold(const AllReduceCall& call) const {
  if (!folded()) return;
  if (takes_part()) {
    call.group.send(call.result, RankId(self_ - 1), message_tags::unfold);
  } else {
    call.group.receive(call.result, RankId(self_ + 1), message_tags::unfold);
  }
}

void all_reduce_recursive_doubling(const AllReduceCall& call, const PartialSums& sums) {
  const Folding folding(call.group.rank().value(), call.group.size());
  ConstBuffer current = folding.fold(call, sums) ? sums.partial : sums.mine;
  if (!folding.takes_part()) return folding.unfold(call);

  std::byte* const incoming = call.scratch.slot(scratch_slots::incoming, 2 * sums.partial.bytes());
  const auto theirs = [&](int step) {
    return MutableBuffer(incoming + static_cast<std::size_t>(step % 2) * sums.partial.bytes(),
                         sums.partial.count, sums.partial.type);
  };
  const auto partner = [&](int step) { return folding.rank_of(folding.index() ^ 1 << step); };
  const auto expect = [&](int step) {
    return 1 << step < folding.active()
               ? call.group.start_receive(theirs(step), partner(step), message_tags::doubling)
               : nullptr;
  };
  std::unique_ptr<Transfer> arriving = expect(0);
  for (int step = 0; 1 << step < folding.active(); ++step) {
    auto next = expect(step + 1);
    const auto sent = call.group.start_send(current, partner(step), message_tags::doubling);
    arriving->wait();
    sent->wait();
    const bool they_are_lower = (folding.index() >> step & 1) != 0;
    combine(they_are_lower ? theirs(step) : current, they_are_lower ? current : theirs(step),
            sums.partial.data, sums.reduction);
    current = sums.partial;
    arriving = std::move(next);
  }
  sums.finish_part(0, sums.mine.count);
  folding.unfold(call);
}

void all_reduce(const AllReduceCall& call, Algorithm algorithm) {
  HETEROPERF_EXPECT(call.mine.count == call.result.count && call.mine.type == call.result.type);
  HETEROPERF_EXPECT(call.segment_bytes > 0);
  if (call.mine.count == 0) return;
  if (call.group.size() == 1) return convert(call.mine, call.result);
  const PartialSums sums =
      make_partial_sums(call.mine, call.result, call.reduction, call.group.size(), call.scratch,
                        scratch_slots::partial);
  const std::size_t segment =
      std::max<std::size_t>(1, call.segment_bytes / size_of(sums.partial.type));
  switch (algorithm) {
    case Algorithm::recursive_doubling:
      return all_reduce_recursive_doubling(call, sums);
    case Algorithm::ring:
      return all_reduce_ring(call, sums, 0);
    case Algorithm::segmented_ring:
      return all_reduce_ring(call, sums, segment);
    case Algorithm::rabenseifner:
      return all_reduce_rabenseifner(call, sums);
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
