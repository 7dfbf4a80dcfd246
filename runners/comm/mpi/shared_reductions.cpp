#include "runners/comm/mpi/shared_host.hpp"

#include <algorithm>
#include <array>

#include "runners/comm/element_types.hpp"

// Every reduction here follows the order of ranks, so that its bits depend on their number alone.
// A vector takes one of three ways by its size:
//
//   small   Every rank gives its whole vector (copies it to shared memory); after one meeting every
//           rank that wants the result reduces all of them itself.
//
//   staged  The vector goes through the slots of shared memory part by part. Each part is cut into
//           one slice per rank. In every step a rank does three things with three parts:
//
//               step   give        make (reduce)   take
//                 0    part 0
//                 1    part 1      part 0
//                 2    part 2      part 1          part 0
//                 3                part 2          part 1
//                 4                                part 2
//
//           giving copies the peers' slices of this rank's part into its slot; making reduces its
//           own slice of what all gave in the step before; taking copies the slices that the peers
//           made in the step before that. Only one meeting per step is needed.
//
//   direct  (single copy) The ranks show each other their buffers. Each reads its slice of the
//           peers' vectors out of their memory, part by part, reduces it, and writes the result
//           into the buffers of all ranks that want it.

namespace heteroperf {
namespace {

/// Up to this size of all ranks' vectors together, every rank reduces the whole vector itself.
constexpr std::size_t small_bytes = 16384;
/// Up to this size of all ranks' vectors together, a root that alone wants the result makes it all.
constexpr std::size_t root_makes_bytes = 65536;
/// The size of a part in direct reductions: it and the peers' parts stay in the second-level cache.
constexpr std::size_t max_part_bytes = 131072;
constexpr std::size_t min_part_bytes = 8192;
constexpr std::size_t all_parts_bytes = 524288;

}  // namespace

std::size_t SharedReductions::direct_part(DataType type) const {
  return std::clamp(all_parts_bytes / host_.members(), min_part_bytes, max_part_bytes) /
         size_of(type);
}

void SharedReductions::reserve_parts(DataType type) {
  const std::size_t bytes = host_.members() * direct_part(type) * size_of(type);
  parts_.resize(std::max(parts_.size(), bytes));
}

void SharedReductions::reduce_to_some(const SharedReduction& job) {
  if (job.mine.bytes() * host_.members() <= small_bytes) return reduce_small(job);
  if (host_.goes_direct(job.mine.bytes())) return reduce_direct(job);
  reduce_staged(job);
}

void SharedReductions::use_given(std::size_t turn, std::size_t offset, ConstBuffer own_values) {
  for (std::size_t r = 0; r < host_.members(); ++r) {
    sources_[r] = host_.room.given(r, turn) + offset;
  }
  sources_[host_.self()] = own_values.data;
}

void SharedReductions::reduce_small(const SharedReduction& job) {
  host_.meeting.begin_step(job.call);
  const std::size_t turn = host_.meeting.turn();
  const bool wanted = job.is_wanted_by(host_.self());
  const bool peers_want = !wanted || job.is_for_all();
  if (peers_want) copy_bytes(host_.room.given(host_.self(), turn), job.mine.data, job.mine.bytes());
  host_.meeting.arrive(job.call);
  if (!wanted) return;
  host_.meeting.await_everybody(job.call);
  use_given(turn, 0, job.mine);
  reduce_in_order(sources_, {&job.result.data, 1}, job.mine.count, job.mine.type,
                  job.call.terms.reduction);
}

void SharedReductions::reduce_staged(const SharedReduction& job) {
  const std::size_t part_count = host_.room.slot_bytes() / size_of(job.mine.type);
  const std::size_t parts = (job.mine.count + part_count - 1) / part_count;
  const auto part = [&](std::size_t k) { return segment_of({0, job.mine.count}, k, part_count); };
  for (std::size_t step = 0;; ++step) {
    host_.meeting.begin_step(job.call);
    const std::size_t turn = host_.meeting.turn();
    if (step >= 2) take_part(job, part(step - 2), 1 - turn);
    if (step == parts + 1) return;
    if (step < parts) {
      const ConstBuffer whole = part_of(job.mine, part(step));
      for (std::size_t r = 0; r < host_.members(); ++r) {
        if (r == host_.self()) continue;
        const Slice slice = slice_of(whole.count, r, host_.members());
        const ConstBuffer given = part_of(whole, slice);
        copy_bytes(host_.room.given(host_.self(), turn) + slice.begin * size_of(given.type),
                   given.data, given.bytes());
      }
    }
    if (step >= 1 && step <= parts) make_part(job, part(step - 1), turn);
    host_.meeting.arrive(job.call);
  }
}

/// Reduces this rank's slice of the part that was given in the last step.
void SharedReductions::make_part(const SharedReduction& job, Slice part, std::size_t turn) {
  const Slice slice = slice_of(part.count, host_.self(), host_.members());
  use_given(1 - turn, slice.begin * size_of(job.mine.type),
            job.mine.part(part.begin + slice.begin, slice.count));
  const bool wanted = job.is_wanted_by(host_.self());
  std::array<void*, 2> made = {host_.room.made(host_.self(), turn), nullptr};
  if (wanted) made[1] = job.result.part(part.begin + slice.begin, 0).data;
  reduce_in_order(sources_, {made.data(), wanted ? 2u : 1u}, slice.count, job.mine.type,
                  job.call.terms.reduction);
}

/// Copies the slices that the peers made; this rank's own slice is in its place already.
void SharedReductions::take_part(const SharedReduction& job, Slice part, std::size_t turn) {
  if (!job.is_wanted_by(host_.self())) return;
  for (std::size_t step = 1; step < host_.members(); ++step) {
    const std::size_t from = host_.peer(step);
    const Slice slice = slice_of(part.count, from, host_.members());
    const MutableBuffer taken = job.result.part(part.begin + slice.begin, slice.count);
    copy_bytes(taken.data, host_.room.made(from, turn), taken.bytes());
  }
}

Slice SharedReductions::slice_made_here(const SharedReduction& job) const {
  if (job.is_for_all() || job.mine.bytes() * host_.members() > root_makes_bytes) {
    return slice_of(job.mine.count, host_.self(), host_.members());
  }
  return job.is_wanted_by(host_.self()) ? Slice{0, job.mine.count} : Slice{};
}

/// In place, the results overwrite the peers' slices of their input, which nobody else reads.
void SharedReductions::reduce_direct(const SharedReduction& job) {
  host_.meeting.open_buffers(job.call, job.mine.data, job.result.data);
  host_.meeting.await_everybody(job.call);
  const bool wanted = job.is_wanted_by(host_.self());
  const Slice slice = slice_made_here(job);
  const std::size_t part = direct_part(job.mine.type), width = size_of(job.mine.type);
  reserve_parts(job.mine.type);
  for (std::size_t begin = slice.begin; begin < slice.end(); begin += part) {
    const std::size_t n = std::min(part, slice.end() - begin);
    void* made =
        wanted ? job.result.part(begin, n).data : parts_.data() + host_.self() * part * width;
    reduce_readable(job.mine, {begin, n}, made, job.call);
    for (std::size_t r = job.first; r < job.last; ++r) {
      if (r == host_.self()) continue;
      host_.peers.write(r, host_.meeting.line(r).writable + begin * width, made, n * width,
                        job.call);
    }
  }
  host_.meeting.meet(job.call);
}

void SharedReductions::reduce_readable(ConstBuffer mine, Slice slice, void* result,
                                       const CollectiveCall& call) {
  const std::size_t width = size_of(mine.type), stride = direct_part(mine.type) * width;
  for (std::size_t r = 0; r < host_.members(); ++r) {
    sources_[r] = part_of(mine, slice).data;
    if (r == host_.self()) continue;
    std::byte* part = parts_.data() + r * stride;
    host_.peers.read(r, host_.meeting.line(r).readable + slice.begin * width, part,
                     slice.count * width, call);
    sources_[r] = part;
  }
  reduce_in_order(sources_, {&result, 1}, slice.count, mine.type, call.terms.reduction);
}

void SharedReductions::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                      Reduction reduction) {
  const CollectiveCall call{reduce_scatter_terms(all, counts, reduction), {"reduce_scatter", all}};
  const Slice my_block = block_of(counts, host_.self());
  if (host_.goes_direct(all.bytes())) return scatter_direct(all, mine, my_block, call);
  const std::size_t width = size_of(all.type);
  const std::size_t part = host_.room.slot_bytes() / host_.members() / width;
  const std::size_t parts = (largest_of(counts) + part - 1) / part;
  for (std::size_t k = 0; k < parts; ++k) {
    host_.meeting.begin_step(call);
    const std::size_t turn = host_.meeting.turn();
    for_each_block(counts, [&](std::size_t r, Slice block) {
      if (r == host_.self()) return;
      const ConstBuffer given = part_of(all, segment_of(block, k, part));
      copy_bytes(host_.room.given(host_.self(), turn) + r * part * width, given.data,
                 given.bytes());
    });
    host_.meeting.arrive(call);
    host_.meeting.await_everybody(call);
    const Slice slice = segment_of(my_block, k, part);
    if (slice.count == 0) continue;
    use_given(turn, host_.self() * part * width, part_of(all, slice));
    void* made = mine.part(k * part, 0).data;
    reduce_in_order(sources_, {&made, 1}, slice.count, all.type, reduction);
  }
}

void SharedReductions::scatter_direct(ConstBuffer all, MutableBuffer mine, Slice block,
                                      const CollectiveCall& call) {
  host_.meeting.open_buffers(call, all.data);
  host_.meeting.await_everybody(call);
  const std::size_t part = direct_part(all.type);
  reserve_parts(all.type);
  for (std::size_t begin = 0; begin < block.count; begin += part) {
    const std::size_t n = std::min(part, block.count - begin);
    reduce_readable(all, {block.begin + begin, n}, mine.part(begin, n).data, call);
  }
  host_.meeting.meet(call);
}

}  // namespace heteroperf
