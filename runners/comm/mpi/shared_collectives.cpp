#include <algorithm>
#include <array>
#include <vector>

#include "runners/comm/element_types.hpp"
#include "runners/comm/mpi/shared_host.hpp"

// The collectives of ranks on one host. In those that only move data, up to 16 KiB, and everywhere
// without single copy, a rank copies its data into its slot of shared memory part by part, and its
// peers copy them out again: two copies, one meeting per part. Larger data are shown to the peers,
// who read them straight out of the rank's buffer: one copy, and a second meeting after which the
// buffer may change again.
//
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

/// A reduction whose result goes to the ranks [first, last): to one rank or to all.
struct SharedReduction {
  CollectiveCall call;
  ConstBuffer input;
  MutableBuffer result;  ///< empty where it is not wanted
  std::size_t first, last;

  bool is_wanted_by(std::size_t rank) const { return first <= rank && rank < last; }
  bool is_for_all() const { return last - first > 1; }
};

/// Owns everything that the ranks of one host share.
class SharedCollectives final : public MpiCollectives, private SharedHost {
 public:
  SharedCollectives(const MpiGroup& the_group, HostChoice choice)
      : SharedHost(the_group, std::move(choice)), sources_(members()) {}

  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    reduce_to_some(
        {{all_reduce_terms(input, reduction), {"all_reduce", input}}, input, result, 0, members()});
  }
  void reduce(ConstBuffer input, MutableBuffer result, std::size_t root,
              Reduction reduction) override {
    reduce_to_some({{reduce_terms(input, RankId(root), reduction), {"reduce", input}},
                    input,
                    result,
                    root,
                    root + 1});
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    const CollectiveCall call{reduce_scatter_terms(all, counts, reduction),
                              {"reduce_scatter", all}};
    const Slice my_block = block_of(counts, self());
    if (goes_direct(all.bytes())) return scatter_direct(all, result, my_block, call);
    const std::size_t width = size_of(all.type);
    const std::size_t part = room.slot_bytes() / members() / width;
    const std::size_t parts = (largest_of(counts) + part - 1) / part;
    for (std::size_t k = 0; k < parts; ++k) {
      meeting.begin_step(call);
      const std::size_t turn = meeting.turn();
      for_each_block(counts, [&](std::size_t r, Slice block) {
        if (r == self()) return;
        const ConstBuffer given = part_of(all, segment_of(block, k, part));
        copy_bytes(room.given(self(), turn) + r * part * width, given.data, given.bytes());
      });
      meeting.arrive(call);
      meeting.await_everybody(call);
      const Slice slice = segment_of(my_block, k, part);
      if (slice.count == 0) continue;
      use_given(turn, self() * part * width, part_of(all, slice));
      void* made = result.part(k * part, 0).data;
      reduce_in_order(sources_, {&made, 1}, slice.count, all.type, reduction);
    }
  }
  void broadcast(MutableBuffer values, std::size_t root) override {
    const CollectiveCall call{broadcast_terms(values, RankId(root)), {"broadcast", values}};
    if (goes_direct(values.bytes())) return broadcast_direct(values, root, call);
    const std::size_t part = room.slot_bytes() / size_of(values.type);
    for (std::size_t begin = 0; begin < values.count; begin += part) {
      const MutableBuffer piece = values.part(begin, std::min(part, values.count - begin));
      meeting.begin_step(call);
      std::byte* slot = room.given(root, meeting.turn());
      if (self() == root) copy_bytes(slot, piece.data, piece.bytes());
      meeting.arrive(call);
      if (self() == root) continue;
      meeting.await(root, call);
      copy_bytes(piece.data, slot, piece.bytes());
    }
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    const CollectiveCall call{all_gather_terms(all, counts), {"all_gather", input}};
    if (goes_direct(all.bytes())) return all_gather_direct(input, all, counts, call);
    const std::size_t part = room.slot_bytes() / size_of(all.type);
    const std::size_t parts = (largest_of(counts) + part - 1) / part;
    for (std::size_t k = 0; k < parts; ++k) {
      meeting.begin_step(call);
      const std::size_t turn = meeting.turn();
      const ConstBuffer given = part_of(input, segment_of({0, input.count}, k, part));
      copy_bytes(room.given(self(), turn), given.data, given.bytes());
      meeting.arrive(call);
      meeting.await_everybody(call);
      for_each_block(counts, [&](std::size_t r, Slice block) {
        if (r == self()) return;
        const MutableBuffer taken = part_of(all, segment_of(block, k, part));
        copy_bytes(taken.data, room.given(r, turn), taken.bytes());
      });
    }
    keep_my_block(input, all, counts);
  }
  /// Counts differ from rank to rank, so the first step carries them: every rank shows the rows of
  /// its counts, and all see whether they fit and how large the largest block is.
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    const CollectiveCall call{all_to_all_terms(input), {"all_to_all", input}};
    const std::size_t width = size_of(input.type);
    const std::size_t part = room.slot_bytes() / members() / width;
    for (std::size_t k = 0, parts = 1; k < parts; ++k) {
      meeting.begin_step(call);
      const std::size_t turn = meeting.turn();
      if (k == 0) {
        std::ranges::copy(to_each, room.sent(self(), turn).begin());
        std::ranges::copy(from_each, room.awaited(self(), turn).begin());
        meeting.next().readable = static_cast<const std::byte*>(input.data);
      }
      if (!goes_direct(input.bytes())) {
        for_each_block(to_each, [&](std::size_t r, Slice block) {
          const ConstBuffer given = part_of(input, segment_of(block, k, part));
          copy_bytes(room.given(self(), turn) + r * part * width, given.data, given.bytes());
        });
      }
      meeting.arrive(call);
      meeting.await_everybody(call);
      if (k == 0) {
        const Largest largest = agree_on_counts(input.type, turn);
        parts = (largest.block + part - 1) / part;
        if (goes_direct(largest.total * width)) {
          exchange_direct(result, from_each, turn, call);
          return meeting.meet(call);
        }
      }
      for_each_block(from_each, [&](std::size_t r, Slice block) {
        const MutableBuffer taken = part_of(result, segment_of(block, k, part));
        copy_bytes(taken.data, room.given(r, turn) + self() * part * width, taken.bytes());
      });
    }
  }
  void barrier() override { agree({bare_terms(CollectiveKind::barrier), {"barrier", {}}}); }
  void agree(const CollectiveCall& call) override { meeting.meet(call); }

 private:
  /// The largest block between two ranks, and the largest sum of what one rank sends. All ranks
  /// decide by these, and so alike.
  struct Largest {
    std::size_t block = 0, total = 0;
  };

  void broadcast_direct(MutableBuffer values, std::size_t root, const CollectiveCall& call) {
    meeting.open_buffers(call, values.data);
    if (self() != root) {
      meeting.await(root, call);
      peers.read(root, meeting.line(root).readable, values.data, values.bytes(), call);
    }
    meeting.meet(call);
  }
  void all_gather_direct(ConstBuffer input, MutableBuffer all, Counts counts,
                         const CollectiveCall& call) {
    meeting.open_buffers(call, input.data);
    keep_my_block(input, all, counts);
    meeting.await_everybody(call);
    for (std::size_t step = 1; step < members(); ++step) {
      const std::size_t from = peer(step);
      const MutableBuffer taken = part_of(all, block_of(counts, from));
      peers.read(from, meeting.line(from).readable, taken.data, taken.bytes(), call);
    }
    meeting.meet(call);
  }
  void keep_my_block(ConstBuffer input, MutableBuffer all, Counts counts) const {
    void* block = part_of(all, block_of(counts, self())).data;
    if (block != input.data) copy_bytes(block, input.data, input.bytes());
  }
  Largest agree_on_counts(DataType type, std::size_t turn) const {
    Largest largest;
    for (std::size_t from = 0; from < members(); ++from) {
      const std::span<const std::uint64_t> sent = room.sent(from, turn);
      for (std::size_t to = 0; to < members(); ++to) {
        const std::uint64_t awaited = room.awaited(to, turn)[from];
        if (sent[to] == awaited) continue;
        const std::vector<RankId>& ranks = group.members();
        throw Error(ErrorKind::run_failed,
                    {counts_disagreement(type, ranks[from], sent[to], ranks[to], awaited)});
      }
      largest.block = std::max(largest.block, largest_of(sent));
      largest.total = std::max(largest.total, total_of(sent));
    }
    return largest;
  }
  void exchange_direct(MutableBuffer result, Counts from_each, std::size_t turn,
                       const CollectiveCall& call) {
    for (std::size_t step = 0; step < members(); ++step) {
      const std::size_t from = peer(step);
      const MutableBuffer taken = part_of(result, block_of(from_each, from));
      const Slice block = block_of(room.sent(from, turn), self());
      const std::byte* there = meeting.line(from).readable + block.begin * size_of(result.type);
      if (from == self()) {
        copy_bytes(taken.data, there, taken.bytes());
      } else {
        peers.read(from, there, taken.data, taken.bytes(), call);
      }
    }
  }

  void reduce_to_some(const SharedReduction& job) {
    if (job.input.bytes() * members() <= small_bytes) return reduce_small(job);
    if (goes_direct(job.input.bytes())) return reduce_direct(job);
    reduce_staged(job);
  }
  void reduce_small(const SharedReduction& job) {
    meeting.begin_step(job.call);
    const std::size_t turn = meeting.turn();
    const bool wanted = job.is_wanted_by(self());
    const bool peers_want = !wanted || job.is_for_all();
    if (peers_want) copy_bytes(room.given(self(), turn), job.input.data, job.input.bytes());
    meeting.arrive(job.call);
    if (!wanted) return;
    meeting.await_everybody(job.call);
    use_given(turn, 0, job.input);
    reduce_in_order(sources_, {&job.result.data, 1}, job.input.count, job.input.type,
                    job.call.terms.reduction);
  }
  void reduce_staged(const SharedReduction& job) {
    const std::size_t part_count = room.slot_bytes() / size_of(job.input.type);
    const std::size_t parts = (job.input.count + part_count - 1) / part_count;
    const auto part = [&](std::size_t k) {
      return segment_of({0, job.input.count}, k, part_count);
    };
    for (std::size_t step = 0;; ++step) {
      meeting.begin_step(job.call);
      const std::size_t turn = meeting.turn();
      if (step >= 2) take_part(job, part(step - 2), 1 - turn);
      if (step == parts + 1) return;
      if (step < parts) {
        const ConstBuffer whole = part_of(job.input, part(step));
        for (std::size_t r = 0; r < members(); ++r) {
          if (r == self()) continue;
          const Slice slice = slice_of(whole.count, r, members());
          const ConstBuffer given = part_of(whole, slice);
          copy_bytes(room.given(self(), turn) + slice.begin * size_of(given.type), given.data,
                     given.bytes());
        }
      }
      if (step >= 1 && step <= parts) make_part(job, part(step - 1), turn);
      meeting.arrive(job.call);
    }
  }
  /// In place, the results overwrite the peers' slices of their input, which nobody else reads.
  void reduce_direct(const SharedReduction& job) {
    meeting.open_buffers(job.call, job.input.data, job.result.data);
    meeting.await_everybody(job.call);
    const bool wanted = job.is_wanted_by(self());
    const Slice slice = slice_made_here(job);
    const std::size_t part = direct_part(job.input.type), width = size_of(job.input.type);
    reserve_parts(job.input.type);
    for (std::size_t begin = slice.begin; begin < slice.end(); begin += part) {
      const std::size_t n = std::min(part, slice.end() - begin);
      void* made = wanted ? job.result.part(begin, n).data : parts_.data() + self() * part * width;
      reduce_readable(job.input, {begin, n}, made, job.call);
      for (std::size_t r = job.first; r < job.last; ++r) {
        if (r == self()) continue;
        peers.write(r, meeting.line(r).writable + begin * width, made, n * width, job.call);
      }
    }
    meeting.meet(job.call);
  }
  /// Lets `sources_` point at the peers' slots of given data, `offset` bytes into each, and at this
  /// rank's own values.
  void use_given(std::size_t turn, std::size_t offset, ConstBuffer own_values) {
    for (std::size_t r = 0; r < members(); ++r) {
      sources_[r] = room.given(r, turn) + offset;
    }
    sources_[self()] = own_values.data;
  }
  Slice slice_made_here(const SharedReduction& job) const {
    if (job.is_for_all() || job.input.bytes() * members() > root_makes_bytes) {
      return slice_of(job.input.count, self(), members());
    }
    return job.is_wanted_by(self()) ? Slice{0, job.input.count} : Slice{};
  }
  /// Reduces this rank's slice of the part that was given in the last step.
  void make_part(const SharedReduction& job, Slice part, std::size_t turn) {
    const Slice slice = slice_of(part.count, self(), members());
    use_given(1 - turn, slice.begin * size_of(job.input.type),
              job.input.part(part.begin + slice.begin, slice.count));
    const bool wanted = job.is_wanted_by(self());
    std::array<void*, 2> made = {room.made(self(), turn), nullptr};
    if (wanted) made[1] = job.result.part(part.begin + slice.begin, 0).data;
    reduce_in_order(sources_, {made.data(), wanted ? 2u : 1u}, slice.count, job.input.type,
                    job.call.terms.reduction);
  }
  /// Copies the slices that the peers made; this rank's own slice is in its place already.
  void take_part(const SharedReduction& job, Slice part, std::size_t turn) {
    if (!job.is_wanted_by(self())) return;
    for (std::size_t step = 1; step < members(); ++step) {
      const std::size_t from = peer(step);
      const Slice slice = slice_of(part.count, from, members());
      const MutableBuffer taken = job.result.part(part.begin + slice.begin, slice.count);
      copy_bytes(taken.data, room.made(from, turn), taken.bytes());
    }
  }
  void scatter_direct(ConstBuffer all, MutableBuffer result, Slice block,
                      const CollectiveCall& call) {
    meeting.open_buffers(call, all.data);
    meeting.await_everybody(call);
    const std::size_t part = direct_part(all.type);
    reserve_parts(all.type);
    for (std::size_t begin = 0; begin < block.count; begin += part) {
      const std::size_t n = std::min(part, block.count - begin);
      reduce_readable(all, {block.begin + begin, n}, result.part(begin, n).data, call);
    }
    meeting.meet(call);
  }
  /// Reduces a slice of every rank's readable buffer into `result`.
  void reduce_readable(ConstBuffer input, Slice slice, void* result, const CollectiveCall& call) {
    const std::size_t width = size_of(input.type), stride = direct_part(input.type) * width;
    for (std::size_t r = 0; r < members(); ++r) {
      sources_[r] = part_of(input, slice).data;
      if (r == self()) continue;
      std::byte* part = parts_.data() + r * stride;
      peers.read(r, meeting.line(r).readable + slice.begin * width, part, slice.count * width,
                 call);
      sources_[r] = part;
    }
    reduce_in_order(sources_, {&result, 1}, slice.count, input.type, call.terms.reduction);
  }
  void reserve_parts(DataType type) {
    const std::size_t bytes = members() * direct_part(type) * size_of(type);
    parts_.resize(std::max(parts_.size(), bytes));
  }
  /// The number of elements reduced at a time out of other processes' memory.
  std::size_t direct_part(DataType type) const {
    return std::clamp(all_parts_bytes / members(), min_part_bytes, max_part_bytes) / size_of(type);
  }

  std::vector<const void*> sources_;
  std::vector<std::byte> parts_;  ///< one part of each rank
};

}  // namespace

std::size_t shared_memory_bytes(std::size_t ranks) { return HostRoom(ranks).bytes(); }

std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice) {
  return std::make_unique<SharedCollectives>(group, std::move(choice));
}

}  // namespace heteroperf
