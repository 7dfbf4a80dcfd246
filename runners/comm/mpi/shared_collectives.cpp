#include <algorithm>
#include <vector>

#include "runners/comm/mpi/shared_host.hpp"

// The collectives of ranks on one host. Reductions are in shared_reductions.cpp; those that only
// move data are here. Up to 16 KiB, and everywhere without single copy, a rank copies its data into
// its slot of shared memory part by part, and its peers copy them out again: two copies, one
// meeting per part. Larger data are shown to the peers, who read them straight out of the rank's
// buffer: one copy, and a second meeting after which the buffer may change again.

namespace heteroperf {
namespace {

/// Owns everything that the ranks of one host share and hands reductions on.
class SharedCollectives final : public MpiCollectives {
 public:
  SharedCollectives(const MpiGroup& group, HostChoice choice)
      : host_(group, std::move(choice)), reductions_(host_) {}

  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override {
    reductions_.reduce_to_some({{all_reduce_terms(mine, reduction), {"all_reduce", mine}},
                                mine,
                                result,
                                0,
                                host_.members()});
  }
  void reduce(ConstBuffer mine, MutableBuffer result, std::size_t root,
              Reduction reduction) override {
    reductions_.reduce_to_some({{reduce_terms(mine, RankId(root), reduction), {"reduce", mine}},
                                mine,
                                result,
                                root,
                                root + 1});
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override {
    reductions_.reduce_scatter(all, mine, counts, reduction);
  }
  void broadcast(MutableBuffer values, std::size_t root) override {
    const CollectiveCall call{broadcast_terms(values, RankId(root)), {"broadcast", values}};
    if (host_.goes_direct(values.bytes())) return broadcast_direct(values, root, call);
    const std::size_t part = host_.room.slot_bytes() / size_of(values.type);
    for (std::size_t begin = 0; begin < values.count; begin += part) {
      const MutableBuffer piece = values.part(begin, std::min(part, values.count - begin));
      host_.meeting.begin_step(call);
      std::byte* slot = host_.room.given(root, host_.meeting.turn());
      if (host_.self() == root) copy_bytes(slot, piece.data, piece.bytes());
      host_.meeting.arrive(call);
      if (host_.self() == root) continue;
      host_.meeting.await(root, call);
      copy_bytes(piece.data, slot, piece.bytes());
    }
  }
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override {
    const CollectiveCall call{all_gather_terms(all, counts), {"all_gather", mine}};
    if (host_.goes_direct(all.bytes())) return all_gather_direct(mine, all, counts, call);
    const std::size_t part = host_.room.slot_bytes() / size_of(all.type);
    const std::size_t parts = (largest_of(counts) + part - 1) / part;
    for (std::size_t k = 0; k < parts; ++k) {
      host_.meeting.begin_step(call);
      const std::size_t turn = host_.meeting.turn();
      const ConstBuffer given = part_of(mine, segment_of({0, mine.count}, k, part));
      copy_bytes(host_.room.given(host_.self(), turn), given.data, given.bytes());
      host_.meeting.arrive(call);
      host_.meeting.await_everybody(call);
      for_each_block(counts, [&](std::size_t r, Slice block) {
        if (r == host_.self()) return;
        const MutableBuffer taken = part_of(all, segment_of(block, k, part));
        copy_bytes(taken.data, host_.room.given(r, turn), taken.bytes());
      });
    }
    keep_my_block(mine, all, counts);
  }
  /// Counts differ from rank to rank, so the first step carries them: every rank shows the rows of
  /// its counts, and all see whether they fit and how large the largest block is.
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override {
    const CollectiveCall call{all_to_all_terms(mine), {"all_to_all", mine}};
    const std::size_t width = size_of(mine.type);
    const std::size_t part = host_.room.slot_bytes() / host_.members() / width;
    for (std::size_t k = 0, parts = 1; k < parts; ++k) {
      host_.meeting.begin_step(call);
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
      host_.meeting.arrive(call);
      host_.meeting.await_everybody(call);
      if (k == 0) {
        const Largest largest = agree_on_counts(mine.type, turn);
        parts = (largest.block + part - 1) / part;
        if (host_.goes_direct(largest.total * width)) {
          exchange_direct(theirs, from_each, turn, call);
          return host_.meeting.meet(call);
        }
      }
      for_each_block(from_each, [&](std::size_t r, Slice block) {
        const MutableBuffer taken = part_of(theirs, segment_of(block, k, part));
        copy_bytes(taken.data, host_.room.given(r, turn) + host_.self() * part * width,
                   taken.bytes());
      });
    }
  }
  void barrier() override { agree({bare_terms(CollectiveKind::barrier), {"barrier", {}}}); }
  void agree(const CollectiveCall& call) override { host_.meeting.meet(call); }

 private:
  /// The largest block between two ranks, and the largest sum of what one rank sends. All ranks
  /// decide by these, and so alike.
  struct Largest {
    std::size_t block = 0, total = 0;
  };

  void broadcast_direct(MutableBuffer values, std::size_t root, const CollectiveCall& call) {
    host_.meeting.open_buffers(call, values.data);
    if (host_.self() != root) {
      host_.meeting.await(root, call);
      host_.peers.read(root, host_.meeting.line(root).readable, values.data, values.bytes(), call);
    }
    host_.meeting.meet(call);
  }
  void all_gather_direct(ConstBuffer mine, MutableBuffer all, Counts counts,
                         const CollectiveCall& call) {
    host_.meeting.open_buffers(call, mine.data);
    keep_my_block(mine, all, counts);
    host_.meeting.await_everybody(call);
    for (std::size_t step = 1; step < host_.members(); ++step) {
      const std::size_t from = host_.peer(step);
      const MutableBuffer taken = part_of(all, block_of(counts, from));
      host_.peers.read(from, host_.meeting.line(from).readable, taken.data, taken.bytes(), call);
    }
    host_.meeting.meet(call);
  }
  void keep_my_block(ConstBuffer mine, MutableBuffer all, Counts counts) const {
    void* block = part_of(all, block_of(counts, host_.self())).data;
    if (block != mine.data) copy_bytes(block, mine.data, mine.bytes());
  }
  Largest agree_on_counts(DataType type, std::size_t turn) const {
    Largest largest;
    for (std::size_t from = 0; from < host_.members(); ++from) {
      const std::span<const std::uint64_t> sent = host_.room.sent(from, turn);
      for (std::size_t to = 0; to < host_.members(); ++to) {
        const std::uint64_t awaited = host_.room.awaited(to, turn)[from];
        if (sent[to] == awaited) continue;
        const std::vector<RankId>& ranks = host_.group.members();
        throw Error(ErrorKind::run_failed,
                    {counts_disagreement(type, ranks[from], sent[to], ranks[to], awaited)});
      }
      largest.block = std::max(largest.block, largest_of(sent));
      largest.total = std::max(largest.total, total_of(sent));
    }
    return largest;
  }
  void exchange_direct(MutableBuffer theirs, Counts from_each, std::size_t turn,
                       const CollectiveCall& call) {
    for (std::size_t step = 0; step < host_.members(); ++step) {
      const std::size_t from = host_.peer(step);
      const MutableBuffer taken = part_of(theirs, block_of(from_each, from));
      const Slice block = block_of(host_.room.sent(from, turn), host_.self());
      const std::byte* there =
          host_.meeting.line(from).readable + block.begin * size_of(theirs.type);
      if (from == host_.self()) {
        copy_bytes(taken.data, there, taken.bytes());
      } else {
        host_.peers.read(from, there, taken.data, taken.bytes(), call);
      }
    }
  }

  SharedHost host_;
  SharedReductions reductions_;
};

}  // namespace

std::size_t shared_memory_bytes(std::size_t ranks) { return HostRoom(ranks).bytes(); }

std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice) {
  return std::make_unique<SharedCollectives>(group, std::move(choice));
}

}  // namespace heteroperf
