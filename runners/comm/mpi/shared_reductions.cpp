#include "runners/comm/mpi/shared_reductions.hpp"

#include <algorithm>
#include <array>

#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

/// Up to here, all ranks together, every rank reduces the whole vector itself.
constexpr std::size_t small_bytes = 16384;
/// Up to here, all ranks together, a root that alone wants the result makes all of it.
constexpr std::size_t root_makes_bytes = 65536;
/// What a rank reduces at a time: it and the peers' parts stay in the second-level cache.
constexpr std::size_t max_part_bytes = 131072;
constexpr std::size_t min_part_bytes = 8192;
constexpr std::size_t all_parts_bytes = 524288;

}  // namespace

std::size_t SharedReductions::direct_part(DataType type) const {
  return std::clamp(all_parts_bytes / host_.members(), min_part_bytes, max_part_bytes) /
         size_of(type);
}

void SharedReductions::reduce_to_some(const SharedReducing& job) {
  if (job.mine.bytes() * host_.members() <= small_bytes) return reduce_small(job);
  if (host_.goes_direct(job.mine.bytes())) return reduce_direct(job);
  reduce_staged(job);
}

void SharedReductions::reduce_small(const SharedReducing& job) {
  host_.meeting.begin_step(job.waited);
  const std::size_t turn = host_.meeting.turn();
  const bool others_want = !job.wanted || job.last - job.first > 1;
  if (others_want)
    copy_bytes(host_.room.given(host_.self(), turn), job.mine.data, job.mine.bytes());
  host_.meeting.arrive(job.terms);
  if (!job.wanted) return;
  host_.meeting.await_everybody(job.waited);
  for (std::size_t r = 0; r < host_.members(); ++r) sources_[r] = host_.room.given(r, turn);
  sources_[host_.self()] = job.mine.data;
  reduce_in_order(sources_, {&job.result.data, 1}, job.mine.count, job.mine.type, job.reduction);
}

/// In every step a part of the vector is given, the one before it reduced (each rank its slice of
/// it), and the result of the one before that taken.
void SharedReductions::reduce_staged(const SharedReducing& job) {
  const std::size_t part = host_.room.slot_bytes() / size_of(job.mine.type);
  const std::size_t parts = (job.mine.count + part - 1) / part;
  const auto size = [&](std::size_t k) { return std::min(part, job.mine.count - k * part); };
  for (std::size_t step = 0;; ++step) {
    host_.meeting.begin_step(job.waited);
    const std::size_t turn = host_.meeting.turn(), last_turn = 1 - turn;
    if (step >= 2) take_parts(job, (step - 2) * part, size(step - 2), last_turn);
    if (step == parts + 1) return;
    if (step < parts) {
      const ConstBuffer whole = job.mine.part(step * part, size(step));
      for (std::size_t r = 0; r < host_.members(); ++r) {
        if (r == host_.self()) continue;
        const Slice slice = slice_of(whole.count, r, host_.members());
        const ConstBuffer given = part_of(whole, slice);
        copy_bytes(host_.room.given(host_.self(), turn) + slice.begin * size_of(given.type),
                   given.data, given.bytes());
      }
    }
    if (step >= 1 && step <= parts) make_part(job, (step - 1) * part, size(step - 1), turn);
    host_.meeting.arrive(job.terms);
  }
}

/// Reduces this rank's slice of what was given in the last step.
void SharedReductions::make_part(const SharedReducing& job, std::size_t begin, std::size_t count,
                                 std::size_t turn) {
  const Slice slice = slice_of(count, host_.self(), host_.members());
  const std::size_t offset = slice.begin * size_of(job.mine.type);
  for (std::size_t r = 0; r < host_.members(); ++r)
    sources_[r] = host_.room.given(r, 1 - turn) + offset;
  sources_[host_.self()] = job.mine.part(begin + slice.begin, 0).data;
  std::array<void*, 2> made = {host_.room.made(host_.self(), turn), nullptr};
  if (job.wanted) made[1] = job.result.part(begin + slice.begin, 0).data;
  reduce_in_order(sources_, {made.data(), job.wanted ? 2u : 1u}, slice.count, job.mine.type,
                  job.reduction);
}

void SharedReductions::take_parts(const SharedReducing& job, std::size_t begin, std::size_t count,
                                  std::size_t turn) {
  if (!job.wanted) return;
  for (std::size_t step = 1; step < host_.members(); ++step) {
    const std::size_t from = host_.peer(step);
    const Slice slice = slice_of(count, from, host_.members());
    const MutableBuffer taken = job.result.part(begin + slice.begin, slice.count);
    copy_bytes(taken.data, host_.room.made(from, turn), taken.bytes());
  }
}

Slice SharedReductions::made_here(const SharedReducing& job) const {
  const bool many = job.last - job.first > 1;
  if (many || job.mine.bytes() * host_.members() > root_makes_bytes) {
    return slice_of(job.mine.count, host_.self(), host_.members());
  }
  return job.wanted ? Slice{0, job.mine.count} : Slice{};
}

/// Each rank reduces its slice and writes it into the results of those who want it. In place this
/// overwrites their slice of the input, which nobody else reads.
void SharedReductions::reduce_direct(const SharedReducing& job) {
  host_.meeting.begin_step(job.waited);
  host_.meeting.next().readable = static_cast<const std::byte*>(job.mine.data);
  host_.meeting.next().writable = static_cast<std::byte*>(job.result.data);
  host_.meeting.arrive(job.terms);
  host_.meeting.await_everybody(job.waited);
  const Slice slice = made_here(job);
  const std::size_t part = direct_part(job.mine.type), width = size_of(job.mine.type);
  parts_.resize(std::max(parts_.size(), host_.members() * part * width));
  for (std::size_t begin = slice.begin; begin < slice.end(); begin += part) {
    const std::size_t n = std::min(part, slice.end() - begin);
    void* made =
        job.wanted ? job.result.part(begin, n).data : parts_.data() + host_.self() * part * width;
    reduce_readable(job.mine, begin, made, n, job.reduction, job.waited);
    for (std::size_t r = job.first; r < job.last; ++r) {
      if (r == host_.self()) continue;
      host_.peers.write(r, host_.meeting.line(r).writable + begin * width, made, n * width,
                        job.waited);
    }
  }
  host_.meeting.meet(job.terms, job.waited);
}

void SharedReductions::reduce_readable(ConstBuffer own, std::size_t begin, void* result,
                                       std::size_t count, Reduction reduction,
                                       const WaitedFor& waited) {
  const std::size_t width = size_of(own.type), stride = direct_part(own.type) * width;
  for (std::size_t r = 0; r < host_.members(); ++r) {
    sources_[r] = own.part(begin, count).data;
    if (r == host_.self()) continue;
    std::byte* theirs = parts_.data() + r * stride;
    host_.peers.read(r, host_.meeting.line(r).readable + begin * width, theirs, count * width,
                     waited);
    sources_[r] = theirs;
  }
  reduce_in_order(sources_, {&result, 1}, count, own.type, reduction);
}

void SharedReductions::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                      Reduction reduction) {
  const WaitedFor waited{"reduce_scatter", all};
  const CollectiveTerms terms = reduce_scatter_terms(all, counts, reduction);
  if (host_.goes_direct(all.bytes())) return scatter_direct(all, mine, counts, reduction, terms);
  const std::size_t width = size_of(all.type),
                    part = host_.room.slot_bytes() / host_.members() / width;
  const std::size_t parts = (largest_of(counts) + part - 1) / part;
  for (std::size_t k = 0; k < parts; ++k) {
    host_.meeting.begin_step(waited);
    const std::size_t turn = host_.meeting.turn();
    for_each_block(counts, [&](std::size_t r, Slice block) {
      if (r == host_.self()) return;
      const ConstBuffer given = part_of(all, segment_of(block, k, part));
      copy_bytes(host_.room.given(host_.self(), turn) + r * part * width, given.data,
                 given.bytes());
    });
    host_.meeting.arrive(terms);
    host_.meeting.await_everybody(waited);
    const Slice slice = segment_of(block_of(counts, host_.self()), k, part);
    if (slice.count == 0) continue;
    for (std::size_t r = 0; r < host_.members(); ++r) {
      sources_[r] = host_.room.given(r, turn) + host_.self() * part * width;
    }
    sources_[host_.self()] = all.part(slice.begin, 0).data;
    void* made = mine.part(k * part, 0).data;
    reduce_in_order(sources_, {&made, 1}, slice.count, all.type, reduction);
  }
}

void SharedReductions::scatter_direct(ConstBuffer all, MutableBuffer mine, Counts counts,
                                      Reduction reduction, const CollectiveTerms& terms) {
  const WaitedFor waited{"reduce_scatter", all};
  host_.meeting.begin_step(waited);
  host_.meeting.next().readable = static_cast<const std::byte*>(all.data);
  host_.meeting.arrive(terms);
  host_.meeting.await_everybody(waited);
  const Slice block = block_of(counts, host_.self());
  const std::size_t part = direct_part(all.type);
  parts_.resize(std::max(parts_.size(), host_.members() * part * size_of(all.type)));
  for (std::size_t begin = 0; begin < block.count; begin += part) {
    const std::size_t n = std::min(part, block.count - begin);
    reduce_readable(all, block.begin + begin, mine.part(begin, n).data, n, reduction, waited);
  }
  host_.meeting.meet(terms, waited);
}

}  // namespace heteroperf
