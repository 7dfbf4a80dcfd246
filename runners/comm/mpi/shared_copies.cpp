#include "runners/comm/mpi/shared_copies.hpp"

#include <algorithm>
#include <vector>

namespace heteroperf {

void SharedCopies::broadcast(MutableBuffer values, std::size_t root) {
  const WaitedFor waited{"broadcast", values};
  const CollectiveTerms terms = broadcast_terms(values, RankId(static_cast<std::int32_t>(root)));
  if (host_.goes_direct(values.bytes())) return broadcast_direct(values, root, terms);
  const std::size_t part = host_.room.slot_bytes() / size_of(values.type);
  for (std::size_t begin = 0; begin < values.count; begin += part) {
    const MutableBuffer piece = values.part(begin, std::min(part, values.count - begin));
    host_.meeting.begin_step(waited);
    std::byte* slot = host_.room.given(root, host_.meeting.turn());
    if (host_.self() == root) copy_bytes(slot, piece.data, piece.bytes());
    host_.meeting.arrive(terms);
    if (host_.self() == root) continue;
    host_.meeting.await(root, waited);
    copy_bytes(piece.data, slot, piece.bytes());
  }
}

void SharedCopies::broadcast_direct(MutableBuffer values, std::size_t root,
                                    const CollectiveTerms& terms) {
  const WaitedFor waited{"broadcast", values};
  host_.meeting.begin_step(waited);
  host_.meeting.next().readable = static_cast<const std::byte*>(values.data);
  host_.meeting.arrive(terms);
  if (host_.self() != root) {
    host_.meeting.await(root, waited);
    host_.peers.read(root, host_.meeting.line(root).readable, values.data, values.bytes(), waited);
  }
  host_.meeting.meet(terms, waited);
}

void SharedCopies::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  const WaitedFor waited{"all_gather", mine};
  const CollectiveTerms terms = all_gather_terms(all, counts);
  if (host_.goes_direct(all.bytes())) return all_gather_direct(mine, all, counts, terms);
  const std::size_t part = host_.room.slot_bytes() / size_of(all.type);
  const std::size_t parts = (largest_of(counts) + part - 1) / part;
  for (std::size_t k = 0; k < parts; ++k) {
    host_.meeting.begin_step(waited);
    const std::size_t turn = host_.meeting.turn();
    const ConstBuffer given = part_of(mine, segment_of({0, mine.count}, k, part));
    copy_bytes(host_.room.given(host_.self(), turn), given.data, given.bytes());
    host_.meeting.arrive(terms);
    host_.meeting.await_everybody(waited);
    for_each_block(counts, [&](std::size_t r, Slice block) {
      if (r == host_.self()) return;
      const MutableBuffer taken = part_of(all, segment_of(block, k, part));
      copy_bytes(taken.data, host_.room.given(r, turn), taken.bytes());
    });
  }
  keep_own(mine, all, counts);
}

void SharedCopies::keep_own(ConstBuffer mine, MutableBuffer all, Counts counts) const {
  void* own = all.part(block_of(counts, host_.self()).begin, 0).data;
  if (own != mine.data) copy_bytes(own, mine.data, mine.bytes());
}

void SharedCopies::all_gather_direct(ConstBuffer mine, MutableBuffer all, Counts counts,
                                     const CollectiveTerms& terms) {
  const WaitedFor waited{"all_gather", mine};
  host_.meeting.begin_step(waited);
  host_.meeting.next().readable = static_cast<const std::byte*>(mine.data);
  host_.meeting.arrive(terms);
  keep_own(mine, all, counts);
  host_.meeting.await_everybody(waited);
  for (std::size_t step = 1; step < host_.members(); ++step) {
    const std::size_t from = host_.peer(step);
    const MutableBuffer taken = part_of(all, block_of(counts, from));
    host_.peers.read(from, host_.meeting.line(from).readable, taken.data, taken.bytes(), waited);
  }
  host_.meeting.meet(terms, waited);
}

void SharedCopies::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                              Counts from_each) {
  const WaitedFor waited{"all_to_all", mine};
  const CollectiveTerms terms = all_to_all_terms(mine);
  const std::size_t width = size_of(mine.type),
                    part = host_.room.slot_bytes() / host_.members() / width;
  for (std::size_t k = 0, parts = 1; k < parts; ++k) {
    host_.meeting.begin_step(waited);
    const std::size_t turn = host_.meeting.turn();
    if (k == 0) {
      std::ranges::copy(to_each, host_.room.sent(host_.self(), turn).begin());
      std::ranges::copy(from_each, host_.room.awaited(host_.self(), turn).begin());
      host_.meeting.next().readable = static_cast<const std::byte*>(mine.data);
    }
    if (!host_.goes_direct(mine.bytes())) {
      for_each_block(to_each, [&](std::size_t r, Slice block) {
        const ConstBuffer given = part_of(mine, segment_of(block, k, part));
        copy_bytes(host_.room.given(host_.self(), turn) + r * part * width, given.data,
                   given.bytes());
      });
    }
    host_.meeting.arrive(terms);
    host_.meeting.await_everybody(waited);
    if (k == 0) {
      const Largest largest = agree_on_counts(mine.type, turn);
      parts = (largest.block + part - 1) / part;
      if (host_.goes_direct(largest.total * width)) {
        exchange_direct(mine, theirs, from_each, turn, waited);
        return host_.meeting.meet(terms, waited);
      }
    }
    for_each_block(from_each, [&](std::size_t r, Slice block) {
      const MutableBuffer taken = part_of(theirs, segment_of(block, k, part));
      copy_bytes(taken.data, host_.room.given(r, turn) + host_.self() * part * width,
                 taken.bytes());
    });
  }
}

/// All ranks decide alike, from the same rows.
SharedCopies::Largest SharedCopies::agree_on_counts(DataType type, std::size_t turn) const {
  Largest largest;
  for (std::size_t from = 0; from < host_.members(); ++from) {
    const std::span<const std::uint64_t> sent = host_.room.sent(from, turn);
    std::size_t total = 0;
    for (std::size_t to = 0; to < host_.members(); ++to) {
      const std::uint64_t awaited = host_.room.awaited(to, turn)[from];
      if (sent[to] != awaited) {
        const std::vector<RankId>& ranks = host_.group.members();
        throw Error(ErrorKind::run_failed,
                    {counts_disagreement(type, ranks[from], sent[to], ranks[to], awaited)});
      }
      total += sent[to];
      largest.block = std::max<std::size_t>(largest.block, sent[to]);
    }
    largest.total = std::max(largest.total, total);
  }
  return largest;
}

void SharedCopies::exchange_direct(ConstBuffer mine, MutableBuffer theirs, Counts from_each,
                                   std::size_t turn, const WaitedFor& waited) {
  const std::size_t width = size_of(mine.type);
  for (std::size_t step = 0; step < host_.members(); ++step) {
    const std::size_t from = host_.peer(step);
    const MutableBuffer taken = part_of(theirs, block_of(from_each, from));
    const Counts row = host_.room.sent(from, turn);
    const std::byte* there =
        host_.meeting.line(from).readable + block_of(row, host_.self()).begin * width;
    if (from == host_.self()) {
      copy_bytes(taken.data, there, taken.bytes());
    } else {
      host_.peers.read(from, there, taken.data, taken.bytes(), waited);
    }
  }
}

}  // namespace heteroperf
