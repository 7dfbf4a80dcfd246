#include <algorithm>
#include <cstring>

#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/slice.hpp"
#include "runners/comm/threads/thread_group.hpp"

// Ranks that are threads of one process read each other's buffers directly. Every collective has
// the same shape:
//
//   1. *offer*: the rank writes down the collective's terms and the addresses of its buffers; a
//      small vector is copied into the offer itself;
//   2. *agree*: all ranks meet; each then compares the offers, and all throw alike when they
//   differ;
//   3. *work*: each rank reads what the others offer. Of a large reduction it makes one slice, the
//      same element range in everybody's vectors, and writes it into all results:
//
//          rank 0's vector  [ a0 | a1 | a2 ]
//          rank 1's vector  [ b0 | b1 | b2 ]     rank 1 reads a1, b1, c1 and writes their sum
//          rank 2's vector  [ c0 | c1 | c2 ]     into slice 1 of all three results
//
//   4. *disperse*: a second meeting keeps the buffers in place until all are through. Small vectors
//      need none, because the offers stay in place until the collective after the next one.
//
// Slices start at multiples of a cache line, so that no two ranks write one line.

namespace heteroperf {
namespace {

void copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

bool is_small(std::size_t bytes) { return bytes <= ThreadOffer::small_bytes; }

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, std::size_t rank)
      : group_(std::move(group)),
        rank_(rank),
        sources_(group_->size()),
        destinations_(group_->size()) {}

  RankId rank() const override { return RankId(rank_); }
  int size() const override { return static_cast<int>(group_->size()); }
  std::string transport() const override { return "threads"; }
  std::string one_thread_reason() const override { return {}; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    reduce_to(all_reduce_terms(input, reduction), input, result, 0, members());
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    const std::size_t target = member(root);
    reduce_to(reduce_terms(input, root, reduction), input, result, target, target + 1);
  }
  void broadcast(MutableBuffer values, RankId root) override {
    const std::size_t origin = member(root);
    offer(broadcast_terms(values, root));
    show(origin == rank_ ? ConstBuffer(values) : ConstBuffer(), values.bytes(), [&] {
      if (origin != rank_) copy(shown(origin).read, values.data, values.bytes());
    });
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    check_blocks(*this, counts, input, all);
    offer(all_gather_terms(all, counts));
    show(input, largest_of(counts) * size_of(input.type), [&] {
      for_each_block(counts, [&](std::size_t r, Slice block) {
        const MutableBuffer to = part_of(all, block);
        copy(r == rank_ ? input.data : shown(r).read, to.data, to.bytes());
      });
    });
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    check_blocks(*this, counts, result, all);
    offer(reduce_scatter_terms(all, counts, reduction));
    show(all, all.bytes(), [&] {
      destinations_.assign(1, result.data);
      reduce_shown(block_of(counts, rank_), reduction);
    });
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    check_exchange(*this, input, to_each, result, from_each);
    ThreadOffer& offered = offer(all_to_all_terms(input));
    offered.read = input.data;
    offered.to_each = to_each;
    offered.from_each = from_each;
    together([&] {
      for (std::size_t to = 0; to < members(); ++to) {
        for (std::size_t from = 0; from < members(); ++from) {
          const std::size_t sent = shown(from).to_each[to], awaited = shown(to).from_each[from];
          if (sent == awaited) continue;
          throw Error(ErrorKind::run_failed,
                      {counts_disagreement(input.type, group_->members[from], sent,
                                           group_->members[to], awaited)});
        }
      }
      for_each_block(from_each, [&](std::size_t r, Slice block) {
        const ConstBuffer from =
            part_of(ConstBuffer(shown(r).read, 0, input.type), block_of(shown(r).to_each, rank_));
        copy(from.data, part_of(result, block).data, from.bytes());
      });
    });
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return std::make_unique<ThreadTransfer>(group_, rank(), Outgoing{values, to, tag});
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return std::make_unique<ThreadTransfer>(group_, rank(), Incoming{values, from, tag});
  }
  void send(ConstBuffer values, RankId to, int tag) override {
    ThreadTransfer(group_, rank(), Outgoing{values, to, tag}).wait();
  }
  void receive(MutableBuffer values, RankId from, int tag) override {
    ThreadTransfer(group_, rank(), Incoming{values, from, tag}).wait();
  }
  void barrier() override {
    offer(bare_terms(CollectiveKind::barrier));
    agree();
  }
  /// The first rank of each new group makes it, and a second collective hands it to the others.
  std::unique_ptr<Communicator> split(int colour, int key) override {
    const CollectiveTerms terms = bare_terms(CollectiveKind::split);
    offer(terms).wish = {colour, key};
    agree();
    std::vector<SplitWish> wishes;
    for (std::size_t r = 0; r < members(); ++r) wishes.push_back(shown(r).wish);
    const SplitGroup part = split_group(wishes, rank_);
    const std::size_t maker = part.places.front();
    if (maker == rank_) {
      group_->children[rank_] =
          std::make_shared<ThreadGroup>(group_->world, part.members(group_->members));
      group_->world->add(group_->children[rank_]);
    }
    offer(terms);
    std::shared_ptr<ThreadGroup> child;
    together([&] { child = group_->children[maker]; });
    if (maker == rank_) group_->children[rank_].reset();
    return std::make_unique<ThreadCommunicator>(std::move(child), part.self_place);
  }

 private:
  std::size_t members() const { return group_->size(); }
  std::size_t member(RankId rank) const {
    HETEROPERF_EXPECT(rank.index() < members());
    return rank.index();
  }
  WaitPoint& here() { return group_->wait_points[rank_]; }

  /// Begins a collective and returns this rank's offer for it.
  ThreadOffer& offer(const CollectiveTerms& terms) {
    turn_ ^= 1;
    ThreadOffer& offer = group_->offers[turn_][rank_];
    offer.terms = terms;
    return offer;
  }
  const ThreadOffer& shown(std::size_t r) const { return group_->offers[turn_][r]; }
  void show_small(ConstBuffer values) {
    ThreadOffer& offer = group_->offers[turn_][rank_];
    copy(values.data, offer.small.data(), values.bytes());
    offer.read = offer.small.data();
  }
  /// Shows values and runs `take` when everybody has shown theirs, of which the longest have so
  /// many bytes.
  template <class Take>
  void show(ConstBuffer values, std::size_t longest_bytes, Take take) {
    if (is_small(longest_bytes)) {
      show_small(values);
      agree();
      return take();
    }
    group_->offers[turn_][rank_].read = values.data;
    together(take);
  }
  /// Shows the offer and waits for everybody's. Throws PeerError, or the same error on all ranks
  /// when they disagree.
  /// All members come to the same decision, because they compare the same offers.
  void agree() {
    assemble();
    const std::vector<ThreadOffer>& offers = group_->offers[turn_];
    const CollectiveTerms& expected = offers[rank_].terms;
    const auto differs = [&](const ThreadOffer& offer) { return !(offer.terms == expected); };
    if (std::ranges::none_of(offers, differs)) return;
    std::vector<CollectiveTerms> terms;
    for (const ThreadOffer& offer : offers) terms.push_back(offer.terms);
    throw Error(ErrorKind::run_failed, {disagreement(terms, group_->members)});
  }
  void assemble() {
    std::uint32_t round = 0;
    Meeting& meeting = group_->meeting;
    ThreadWorld& world = *group_->world;
    Meeting::Outcome outcome = meeting.arrive(round);
    if (outcome == Meeting::Outcome::complete) return group_->wake_everyone();
    if (outcome == Meeting::Outcome::waiting) {
      here().wait(world.spins(), [&] {
        outcome = meeting.look(round);
        return outcome != Meeting::Outcome::waiting || world.in_vain(group_->members);
      });
      if (outcome == Meeting::Outcome::waiting) outcome = meeting.leave(round);
      if (outcome == Meeting::Outcome::complete) return;
      group_->wake_everyone();
    }
    const auto failure = world.failure_among(group_->members);
    throw PeerError(failure.value_or(RankFailure{group_->members[rank_], ErrorKind::run_failed,
                                                 "the group is broken by an earlier failure"}),
                    describe(shown(rank_).terms));
  }
  /// Runs `work` while every buffer shown stays in place, and waits for all.
  template <class Work>
  void together(Work work) {
    struct Dispersal {
      ThreadCommunicator& self;
      ~Dispersal() { self.disperse(); }
    };
    agree();
    Dispersal even_if_work_throws{*this};
    work();
  }
  /// Nobody leaves this meeting early: each member is on its way here and waits for nothing else,
  /// and its peers may still be reading or writing its buffers.
  void disperse() {
    std::uint32_t round = 0;
    Meeting& meeting = group_->meeting;
    if (meeting.arrive(round) == Meeting::Outcome::complete) return group_->wake_everyone();
    here().wait(group_->world->spins(),
                [&] { return meeting.look(round) != Meeting::Outcome::waiting; });
  }
  /// A reduction whose result the ranks [first, last) get.
  void reduce_to(const CollectiveTerms& terms, ConstBuffer input, MutableBuffer result,
                 std::size_t first, std::size_t last) {
    const bool wanted = first <= rank_ && rank_ < last;
    HETEROPERF_EXPECT(!wanted || (input.count == result.count && input.type == result.type));
    ThreadOffer& offered = offer(terms);
    if (is_small(input.bytes())) {
      show_small(input);
      agree();
      if (!wanted) return;
      destinations_.assign(1, result.data);
      return reduce_shown({0, input.count}, terms.reduction);
    }
    offered.read = input.data;
    offered.write = result.data;
    together([&] {
      const std::size_t width = size_of(input.type);
      const Slice slice = even_slice(input.count, rank_, members(), cache_line_bytes / width);
      destinations_.resize(last - first);
      for (std::size_t r = first; r < last; ++r) {
        destinations_[r - first] = static_cast<std::byte*>(shown(r).write) + slice.begin * width;
      }
      reduce_shown(slice, terms.reduction);
    });
  }
  /// Reduces a slice of the vectors that all ranks show into `destinations_`.
  void reduce_shown(Slice slice, Reduction reduction) {
    if (slice.count == 0) return;
    const DataType type = shown(rank_).terms.type;
    for (std::size_t r = 0; r < members(); ++r) {
      sources_[r] = static_cast<const std::byte*>(shown(r).read) + slice.begin * size_of(type);
    }
    reduce_in_order(sources_, destinations_, slice.count, type, reduction);
  }

  std::shared_ptr<ThreadGroup> group_;
  std::size_t rank_;
  std::size_t turn_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::shared_ptr<ThreadWorld>& world, std::vector<RankId> members) {
  const std::size_t size = members.size();
  auto group = std::make_shared<ThreadGroup>(world, std::move(members));
  world->add(group);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::size_t rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace heteroperf
