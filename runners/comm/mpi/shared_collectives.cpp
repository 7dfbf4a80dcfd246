#include "runners/comm/mpi/shared_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runners/comm/element_types.hpp"
#include "runners/comm/mpi/host_room.hpp"
#include "runners/comm/mpi/peer_memory.hpp"

namespace heteroperf {
namespace {

/// Up to here, all ranks together, every rank reduces the whole vector itself.
constexpr std::size_t small_bytes = 16384;
/// Up to here, all ranks together, a root that alone wants the result makes all of it.
constexpr std::size_t root_makes_bytes = 65536;
/// From here on a rank's data go straight from buffer to buffer.
constexpr std::size_t single_copy_bytes = 16384;
/// What a rank reduces at a time: it and the peers' parts stay in the second-level cache.
constexpr std::size_t max_part_bytes = 131072;
constexpr std::size_t min_part_bytes = 8192;
constexpr std::size_t all_parts_bytes = 524288;

enum class Operation : std::uint32_t {
  barrier = 1,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all
};

Agreement agreement_on(Operation operation, DataType type, std::size_t count,
                       Reduction reduction = Reduction::sum, std::size_t root = 0) {
  return {static_cast<std::uint32_t>(operation) << 16 | static_cast<std::uint32_t>(type) << 8 |
              static_cast<std::uint32_t>(reduction),
          static_cast<std::int32_t>(root), count};
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// Elements [index * part, …) of a block.
Slice part_of(Slice block, std::size_t index, std::size_t part) {
  return {std::min(block.end, block.begin + index * part),
          std::min(block.end, block.begin + (index + 1) * part)};
}

/// A reduction whose result goes to one rank or to all.
struct Reducing {
  ConstBuffer mine;
  MutableBuffer result;  ///< empty where it is not wanted
  Reduction reduction;
  WaitedFor waited;
  Agreement agreement;
  bool wanted;        ///< here
  std::size_t first;  ///< ranks [first, last) get the result
  std::size_t last;
};

class SharedCollectives final : public MpiCollectives {
 public:
  SharedCollectives(const MpiGroup& group, HostChoice choice)
      : group_(group),
        memory_(std::move(choice.memory)),
        room_(group.size(), memory_.data()),
        meeting_(group, room_.lines(), choice.crowded),
        single_copy_(choice.path == HostPath::single_copy),
        peers_(group, std::move(choice.members)),
        sources_(group.size()) {}

  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override {
    reduce_to_some({mine,
                    result,
                    reduction,
                    {"all_reduce", mine},
                    agreement_on(Operation::all_reduce, mine.type, mine.count, reduction),
                    true,
                    0,
                    members()});
  }
  void reduce(ConstBuffer mine, MutableBuffer result, std::size_t root,
              Reduction reduction) override {
    reduce_to_some({mine,
                    result,
                    reduction,
                    {"reduce", mine},
                    agreement_on(Operation::reduce, mine.type, mine.count, reduction, root),
                    self() == root,
                    root,
                    root + 1});
  }
  void broadcast(MutableBuffer values, std::size_t root) override;
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override;
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override;
  void barrier() override {
    meeting_.meet(agreement_on(Operation::barrier, DataType::u8, 0), {"barrier", {}});
  }

 private:
  std::size_t members() const { return group_.size(); }
  std::size_t self() const { return group_.self(); }
  /// So that peers are not all read in the same order.
  std::size_t peer(std::size_t step) const { return (self() + step) % members(); }
  bool goes_direct(std::size_t bytes) const { return single_copy_ && bytes >= single_copy_bytes; }
  /// Elements reduced at a time out of other processes' memory.
  std::size_t direct_part(DataType type) const {
    return std::clamp(all_parts_bytes / members(), min_part_bytes, max_part_bytes) / size_of(type);
  }

  void reduce_to_some(const Reducing& job);
  void reduce_small(const Reducing& job);
  void reduce_staged(const Reducing& job);
  void reduce_direct(const Reducing& job);
  Slice made_here(const Reducing& job) const;
  void make_part(const Reducing& job, std::size_t begin, std::size_t count, std::size_t turn);
  void take_parts(const Reducing& job, std::size_t begin, std::size_t count, std::size_t turn);
  void broadcast_direct(MutableBuffer values, std::size_t root, const Agreement& agreement);
  void all_gather_direct(ConstBuffer mine, MutableBuffer all, Counts counts,
                         const Agreement& agreement);
  void keep_own(ConstBuffer mine, MutableBuffer all, Counts counts) const;
  void scatter_direct(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction reduction,
                      const Agreement& agreement);
  /// Elements [begin, begin + count) of every rank's readable buffer, reduced in order.
  void reduce_readable(ConstBuffer own, std::size_t begin, void* result, std::size_t count,
                       Reduction reduction, const WaitedFor& waited);
  void exchange_direct(ConstBuffer mine, MutableBuffer theirs, Counts from_each, std::size_t turn,
                       const WaitedFor& waited);
  std::size_t agree_on_counts(MutableBuffer theirs, Counts from_each, std::size_t turn,
                              std::size_t& largest_total);

  const MpiGroup& group_;
  SharedMemory memory_;
  HostRoom room_;
  HostMeeting meeting_;
  bool single_copy_;
  PeerMemory peers_;
  std::vector<const void*> sources_;
  std::vector<std::byte> parts_;
};

// ---- reductions

void SharedCollectives::reduce_to_some(const Reducing& job) {
  if (job.mine.bytes() * members() <= small_bytes) return reduce_small(job);
  if (goes_direct(job.mine.bytes())) return reduce_direct(job);
  reduce_staged(job);
}

void SharedCollectives::reduce_small(const Reducing& job) {
  meeting_.begin_step(job.waited);
  const std::size_t turn = meeting_.turn();
  const bool others_want = !job.wanted || job.last - job.first > 1;
  if (others_want) copy_bytes(room_.given(self(), turn), job.mine.data, job.mine.bytes());
  meeting_.arrive(job.agreement);
  if (!job.wanted) return;
  meeting_.await_everybody(job.waited);
  for (std::size_t r = 0; r < members(); ++r) sources_[r] = room_.given(r, turn);
  sources_[self()] = job.mine.data;
  reduce_in_order(sources_, {&job.result.data, 1}, job.mine.count, job.mine.type, job.reduction);
}

/// In every step a part of the vector is given, the one before it reduced (each rank its slice of
/// it), and the result of the one before that taken.
void SharedCollectives::reduce_staged(const Reducing& job) {
  const std::size_t part = room_.slot_bytes() / size_of(job.mine.type);
  const std::size_t parts = (job.mine.count + part - 1) / part;
  const auto size = [&](std::size_t k) { return std::min(part, job.mine.count - k * part); };
  for (std::size_t step = 0;; ++step) {
    meeting_.begin_step(job.waited);
    const std::size_t turn = meeting_.turn(), last_turn = 1 - turn;
    if (step >= 2) take_parts(job, (step - 2) * part, size(step - 2), last_turn);
    if (step == parts + 1) return;
    if (step < parts) {
      const ConstBuffer whole = job.mine.part(step * part, size(step));
      for (std::size_t r = 0; r < members(); ++r) {
        if (r == self()) continue;
        const Slice slice = slice_of(whole.count, r, members());
        const ConstBuffer given = whole.part(slice.begin, slice.count());
        copy_bytes(room_.given(self(), turn) + slice.begin * size_of(given.type), given.data,
                   given.bytes());
      }
    }
    if (step >= 1 && step <= parts) make_part(job, (step - 1) * part, size(step - 1), turn);
    meeting_.arrive(job.agreement);
  }
}

/// Reduces this rank's slice of what was given in the last step.
void SharedCollectives::make_part(const Reducing& job, std::size_t begin, std::size_t count,
                                  std::size_t turn) {
  const Slice slice = slice_of(count, self(), members());
  const std::size_t offset = slice.begin * size_of(job.mine.type);
  for (std::size_t r = 0; r < members(); ++r) sources_[r] = room_.given(r, 1 - turn) + offset;
  sources_[self()] = job.mine.part(begin + slice.begin, 0).data;
  std::array<void*, 2> made = {room_.made(self(), turn), nullptr};
  if (job.wanted) made[1] = job.result.part(begin + slice.begin, 0).data;
  reduce_in_order(sources_, {made.data(), job.wanted ? 2u : 1u}, slice.count(), job.mine.type,
                  job.reduction);
}

void SharedCollectives::take_parts(const Reducing& job, std::size_t begin, std::size_t count,
                                   std::size_t turn) {
  if (!job.wanted) return;
  for (std::size_t step = 1; step < members(); ++step) {
    const std::size_t from = peer(step);
    const Slice slice = slice_of(count, from, members());
    const MutableBuffer taken = job.result.part(begin + slice.begin, slice.count());
    copy_bytes(taken.data, room_.made(from, turn), taken.bytes());
  }
}

Slice SharedCollectives::made_here(const Reducing& job) const {
  const bool many = job.last - job.first > 1;
  if (many || job.mine.bytes() * members() > root_makes_bytes) {
    return slice_of(job.mine.count, self(), members());
  }
  return job.wanted ? Slice{0, job.mine.count} : Slice{};
}

/// Each rank reduces its slice and writes it into the results of those who want it. In place this
/// overwrites their slice of the input, which nobody else reads.
void SharedCollectives::reduce_direct(const Reducing& job) {
  meeting_.begin_step(job.waited);
  meeting_.own().readable = static_cast<const std::byte*>(job.mine.data);
  meeting_.own().writable = static_cast<std::byte*>(job.result.data);
  meeting_.arrive(job.agreement);
  meeting_.await_everybody(job.waited);
  const Slice slice = made_here(job);
  const std::size_t part = direct_part(job.mine.type), width = size_of(job.mine.type);
  parts_.resize(std::max(parts_.size(), members() * part * width));
  for (std::size_t begin = slice.begin; begin < slice.end; begin += part) {
    const std::size_t n = std::min(part, slice.end - begin);
    void* made =
        job.wanted ? job.result.part(begin, n).data : parts_.data() + self() * part * width;
    reduce_readable(job.mine, begin, made, n, job.reduction, job.waited);
    for (std::size_t r = job.first; r < job.last; ++r) {
      if (r == self()) continue;
      peers_.write(r, meeting_.line(r).writable + begin * width, made, n * width, job.waited);
    }
  }
  meeting_.meet(job.agreement, job.waited);
}

void SharedCollectives::reduce_readable(ConstBuffer own, std::size_t begin, void* result,
                                        std::size_t count, Reduction reduction,
                                        const WaitedFor& waited) {
  const std::size_t width = size_of(own.type), stride = direct_part(own.type) * width;
  for (std::size_t r = 0; r < members(); ++r) {
    sources_[r] = own.part(begin, count).data;
    if (r == self()) continue;
    std::byte* theirs = parts_.data() + r * stride;
    peers_.read(r, meeting_.line(r).readable + begin * width, theirs, count * width, waited);
    sources_[r] = theirs;
  }
  reduce_in_order(sources_, {&result, 1}, count, own.type, reduction);
}

void SharedCollectives::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                       Reduction reduction) {
  const WaitedFor waited{"reduce_scatter", all};
  const Agreement agreement =
      agreement_on(Operation::reduce_scatter, all.type, all.count, reduction);
  if (goes_direct(all.bytes())) return scatter_direct(all, mine, counts, reduction, agreement);
  const std::size_t width = size_of(all.type), part = room_.slot_bytes() / members() / width;
  const std::size_t parts = (*std::ranges::max_element(counts) + part - 1) / part;
  for (std::size_t k = 0; k < parts; ++k) {
    meeting_.begin_step(waited);
    const std::size_t turn = meeting_.turn();
    Slice block;
    for (std::size_t r = 0; r < members(); ++r) {
      block = {block.end, block.end + counts[r]};
      const Slice slice = part_of(block, k, part);
      if (r == self()) continue;
      copy_bytes(room_.given(self(), turn) + r * part * width, all.part(slice.begin, 0).data,
                 slice.count() * width);
    }
    meeting_.arrive(agreement);
    meeting_.await_everybody(waited);
    const Slice slice = part_of(block_of(counts, self()), k, part);
    if (slice.count() == 0) continue;
    for (std::size_t r = 0; r < members(); ++r) {
      sources_[r] = room_.given(r, turn) + self() * part * width;
    }
    sources_[self()] = all.part(slice.begin, 0).data;
    void* made = mine.part(k * part, 0).data;
    reduce_in_order(sources_, {&made, 1}, slice.count(), all.type, reduction);
  }
}

void SharedCollectives::scatter_direct(ConstBuffer all, MutableBuffer mine, Counts counts,
                                       Reduction reduction, const Agreement& agreement) {
  const WaitedFor waited{"reduce_scatter", all};
  meeting_.begin_step(waited);
  meeting_.own().readable = static_cast<const std::byte*>(all.data);
  meeting_.arrive(agreement);
  meeting_.await_everybody(waited);
  const Slice block = block_of(counts, self());
  const std::size_t part = direct_part(all.type);
  parts_.resize(std::max(parts_.size(), members() * part * size_of(all.type)));
  for (std::size_t begin = 0; begin < block.count(); begin += part) {
    const std::size_t n = std::min(part, block.count() - begin);
    reduce_readable(all, block.begin + begin, mine.part(begin, n).data, n, reduction, waited);
  }
  meeting_.meet(agreement, waited);
}

// ---- copies

void SharedCollectives::broadcast(MutableBuffer values, std::size_t root) {
  const WaitedFor waited{"broadcast", values};
  const Agreement agreement =
      agreement_on(Operation::broadcast, values.type, values.count, Reduction::sum, root);
  if (goes_direct(values.bytes())) return broadcast_direct(values, root, agreement);
  const std::size_t part = room_.slot_bytes() / size_of(values.type);
  for (std::size_t begin = 0; begin < values.count; begin += part) {
    const MutableBuffer piece = values.part(begin, std::min(part, values.count - begin));
    meeting_.begin_step(waited);
    std::byte* slot = room_.given(root, meeting_.turn());
    if (self() == root) copy_bytes(slot, piece.data, piece.bytes());
    meeting_.arrive(agreement);
    if (self() == root) continue;
    meeting_.await(root, waited);
    copy_bytes(piece.data, slot, piece.bytes());
  }
}

void SharedCollectives::broadcast_direct(MutableBuffer values, std::size_t root,
                                         const Agreement& agreement) {
  const WaitedFor waited{"broadcast", values};
  meeting_.begin_step(waited);
  meeting_.own().readable = static_cast<const std::byte*>(values.data);
  meeting_.arrive(agreement);
  if (self() != root) {
    meeting_.await(root, waited);
    peers_.read(root, meeting_.line(root).readable, values.data, values.bytes(), waited);
  }
  meeting_.meet(agreement, waited);
}

void SharedCollectives::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  const WaitedFor waited{"all_gather", mine};
  const Agreement agreement = agreement_on(Operation::all_gather, all.type, all.count);
  if (goes_direct(all.bytes())) return all_gather_direct(mine, all, counts, agreement);
  const std::size_t width = size_of(all.type), part = room_.slot_bytes() / width;
  const std::size_t parts = (*std::ranges::max_element(counts) + part - 1) / part;
  for (std::size_t k = 0; k < parts; ++k) {
    meeting_.begin_step(waited);
    const std::size_t turn = meeting_.turn();
    const Slice given = part_of({0, mine.count}, k, part);
    copy_bytes(room_.given(self(), turn), mine.part(given.begin, 0).data, given.count() * width);
    meeting_.arrive(agreement);
    meeting_.await_everybody(waited);
    Slice block;
    for (std::size_t r = 0; r < members(); ++r) {
      block = {block.end, block.end + counts[r]};
      const Slice taken = part_of(block, k, part);
      if (r == self()) continue;
      copy_bytes(all.part(taken.begin, 0).data, room_.given(r, turn), taken.count() * width);
    }
  }
  keep_own(mine, all, counts);
}

void SharedCollectives::keep_own(ConstBuffer mine, MutableBuffer all, Counts counts) const {
  void* own = all.part(block_of(counts, self()).begin, 0).data;
  if (own != mine.data) copy_bytes(own, mine.data, mine.bytes());
}

void SharedCollectives::all_gather_direct(ConstBuffer mine, MutableBuffer all, Counts counts,
                                          const Agreement& agreement) {
  const WaitedFor waited{"all_gather", mine};
  meeting_.begin_step(waited);
  meeting_.own().readable = static_cast<const std::byte*>(mine.data);
  meeting_.arrive(agreement);
  keep_own(mine, all, counts);
  meeting_.await_everybody(waited);
  for (std::size_t step = 1; step < members(); ++step) {
    const std::size_t from = peer(step);
    const Slice block = block_of(counts, from);
    const MutableBuffer taken = all.part(block.begin, block.count());
    peers_.read(from, meeting_.line(from).readable, taken.data, taken.bytes(), waited);
  }
  meeting_.meet(agreement, waited);
}

void SharedCollectives::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                                   Counts from_each) {
  const WaitedFor waited{"all_to_all", mine};
  const Agreement agreement = agreement_on(Operation::all_to_all, mine.type, 0);
  const std::size_t width = size_of(mine.type), part = room_.slot_bytes() / members() / width;
  for (std::size_t k = 0, parts = 1; k < parts; ++k) {
    meeting_.begin_step(waited);
    const std::size_t turn = meeting_.turn();
    if (k == 0) {
      std::ranges::copy(to_each, room_.row(self(), turn).begin());
      meeting_.own().readable = static_cast<const std::byte*>(mine.data);
    }
    Slice block;
    for (std::size_t r = 0; r < members() && !goes_direct(mine.bytes()); ++r) {
      block = {block.end, block.end + to_each[r]};
      const Slice given = part_of(block, k, part);
      copy_bytes(room_.given(self(), turn) + r * part * width, mine.part(given.begin, 0).data,
                 given.count() * width);
    }
    meeting_.arrive(agreement);
    meeting_.await_everybody(waited);
    if (k == 0) {
      std::size_t largest_total = 0;
      parts = (agree_on_counts(theirs, from_each, turn, largest_total) + part - 1) / part;
      if (goes_direct(largest_total * width)) {
        exchange_direct(mine, theirs, from_each, turn, waited);
        return meeting_.meet(agreement, waited);
      }
    }
    block = {};
    for (std::size_t r = 0; r < members(); ++r) {
      block = {block.end, block.end + from_each[r]};
      const Slice taken = part_of(block, k, part);
      copy_bytes(theirs.part(taken.begin, 0).data, room_.given(r, turn) + self() * part * width,
                 taken.count() * width);
    }
  }
}

/// The largest block and the largest total of any rank: what all decide upon alike.
std::size_t SharedCollectives::agree_on_counts(MutableBuffer theirs, Counts from_each,
                                               std::size_t turn, std::size_t& largest_total) {
  std::size_t largest = 0;
  for (std::size_t r = 0; r < members(); ++r) {
    const std::span<const std::uint64_t> row = room_.row(r, turn);
    largest = std::max<std::size_t>(largest, *std::ranges::max_element(row));
    std::size_t row_total = 0;
    for (std::uint64_t n : row) row_total += n;
    largest_total = std::max(largest_total, row_total);
    if (row[self()] == from_each[r]) continue;
    throw Error(ErrorKind::internal,
                {{fmt::format("rank {} awaits {} {} from rank {}, which has {}",
                              group_.members()[self()].value(), from_each[r],
                              to_string(theirs.type), group_.members()[r].value(), row[self()]),
                  "both sides need the same count and type",
                  "Please report this with the command that caused it."}});
  }
  return largest;
}

void SharedCollectives::exchange_direct(ConstBuffer mine, MutableBuffer theirs, Counts from_each,
                                        std::size_t turn, const WaitedFor& waited) {
  const std::size_t width = size_of(mine.type);
  for (std::size_t step = 0; step < members(); ++step) {
    const std::size_t from = peer(step);
    const Slice block = block_of(from_each, from);
    const MutableBuffer taken = theirs.part(block.begin, block.count());
    const std::span<const std::uint64_t> row = room_.row(from, turn);
    std::size_t begin = 0;
    for (std::size_t r = 0; r < self(); ++r) begin += row[r];
    const std::byte* there = meeting_.line(from).readable + begin * width;
    if (from == self()) {
      copy_bytes(taken.data, there, taken.bytes());
    } else {
      peers_.read(from, there, taken.data, taken.bytes(), waited);
    }
  }
}

}  // namespace

std::size_t shared_memory_bytes(std::size_t ranks) { return HostRoom(ranks).bytes(); }

std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice) {
  return std::make_unique<SharedCollectives>(group, std::move(choice));
}

}  // namespace heteroperf
