#include "runners/comm/threads/thread_communicator.hpp"

#include <algorithm>
#include <cstring>

#include "runners/comm/collectives/scratch.hpp"
#include "runners/comm/concurrent_use.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/slice.hpp"
#include "runners/comm/threads/thread_group.hpp"
#include "runners/comm/threads/thread_transfer.hpp"

namespace heteroperf {
namespace {

/// Slices start at multiples of a cache line, so that no two ranks write one line.

/// Small vectors travel in what the ranks show each other, and one meeting is all they need. For
/// large ones each rank works on its slice in everybody's buffers, in one pass over memory, and a
/// second meeting keeps the buffers in place until all are through.
class ThreadCommunicator final : public Communicator, public ConcurrentUse {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, std::size_t rank)
      : group_(std::move(group)),
        rank_(rank),
        sources_(group_->size()),
        destinations_(group_->size()) {}

  RankId rank() const override { return RankId(static_cast<std::int32_t>(rank_)); }
  int size() const override { return static_cast<int>(group_->size()); }
  std::string transport() const override { return "threads"; }
  std::string one_thread_reason() const override { return {}; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override;
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) override;
  void broadcast(MutableBuffer values, RankId root) override;
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override;
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override;
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    return std::make_unique<ThreadTransfer>(group_, rank().value(), Outgoing{values, to, tag});
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    return std::make_unique<ThreadTransfer>(group_, rank().value(), Incoming{values, from, tag});
  }
  void send(ConstBuffer values, RankId to, int tag) override {
    ThreadTransfer(group_, rank().value(), Outgoing{values, to, tag}).wait();
  }
  void receive(MutableBuffer values, RankId from, int tag) override {
    ThreadTransfer(group_, rank().value(), Incoming{values, from, tag}).wait();
  }
  void barrier() override;
  std::unique_ptr<Communicator> split(int colour, int key) override;

 private:
  std::size_t members() const { return group_->size(); }
  std::size_t member(RankId rank) const;
  WaitPoint& here() { return group_->wait_points[rank_]; }

  /// Begins a collective: what this rank will show.
  ThreadOffer& offer(const CollectiveTerms& terms);
  const ThreadOffer& shown(std::size_t r) const { return group_->offers[turn_][r]; }
  void show_small(ConstBuffer values);
  /// Shows it and waits for everybody's. Throws PeerError, or alike on all ranks, when they
  /// disagree.
  void agree();
  void assemble();
  /// All members decide alike, from the same offers.
  std::optional<Problem> disagreement() const;
  /// Runs `work` while every buffer shown stays in place, and waits for all.
  template <class Work>
  void together(Work work);
  void disperse();
  void check_counts(Counts counts, std::size_t own, std::size_t total) const;
  /// Elements [begin, begin + count) of what all ranks show, to `destinations_`.
  void reduce_shown(std::size_t begin, std::size_t count, Reduction reduction);

  std::shared_ptr<ThreadGroup> group_;
  std::size_t rank_;
  std::size_t turn_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

void copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

bool is_small(std::size_t bytes) { return bytes <= ThreadOffer::small_bytes; }

// ---- meeting

std::size_t ThreadCommunicator::member(RankId rank) const {
  HETEROPERF_EXPECT(rank.value() >= 0 && rank.value() < size());
  return static_cast<std::size_t>(rank.value());
}

ThreadOffer& ThreadCommunicator::offer(const CollectiveTerms& terms) {
  turn_ ^= 1;
  ThreadOffer& own = group_->offers[turn_][rank_];
  own.terms = terms;
  return own;
}

void ThreadCommunicator::show_small(ConstBuffer values) {
  ThreadOffer& own = group_->offers[turn_][rank_];
  copy(values.data, own.small.data(), values.bytes());
  own.read = own.small.data();
}

void ThreadCommunicator::agree() {
  assemble();
  if (const auto problem = disagreement()) throw Error(ErrorKind::run_failed, {*problem});
}

void ThreadCommunicator::assemble() {
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

std::optional<Problem> ThreadCommunicator::disagreement() const {
  const CollectiveTerms& own = shown(rank_).terms;
  const auto differs = [&](const ThreadOffer& other) { return !(other.terms == own); };
  if (std::ranges::none_of(group_->offers[turn_], differs)) return std::nullopt;
  std::vector<CollectiveTerms> terms;
  for (const ThreadOffer& other : group_->offers[turn_]) terms.push_back(other.terms);
  return heteroperf::disagreement(terms, group_->members);
}

template <class Work>
void ThreadCommunicator::together(Work work) {
  struct Dispersal {
    ThreadCommunicator& self;
    ~Dispersal() { self.disperse(); }
  };
  agree();
  Dispersal even_if_work_throws{*this};
  work();
}

/// Nobody leaves this one early: each member is on its way here and waits for nothing else, and
/// its peers may still be reading or writing its buffers.
void ThreadCommunicator::disperse() {
  std::uint32_t round = 0;
  Meeting& meeting = group_->meeting;
  if (meeting.arrive(round) == Meeting::Outcome::complete) return group_->wake_everyone();
  here().wait(group_->world->spins(),
              [&] { return meeting.look(round) != Meeting::Outcome::waiting; });
}

void ThreadCommunicator::check_counts(Counts counts, std::size_t own, std::size_t total) const {
  HETEROPERF_EXPECT(counts.size() == members());
  HETEROPERF_EXPECT(counts[rank_] == own && total_of(counts) == total);
}

// ---- collectives

void ThreadCommunicator::reduce_shown(std::size_t begin, std::size_t count, Reduction reduction) {
  if (count == 0) return;
  const DataType type = shown(rank_).terms.type;
  for (std::size_t r = 0; r < members(); ++r) {
    sources_[r] = static_cast<const std::byte*>(shown(r).read) + begin * size_of(type);
  }
  reduce_in_order(sources_, destinations_, count, type, reduction);
}

void ThreadCommunicator::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  HETEROPERF_EXPECT(mine.count == result.count && mine.type == result.type);
  ThreadOffer& own = offer(all_reduce_terms(mine, reduction));
  if (is_small(mine.bytes())) {
    show_small(mine);
    agree();
    destinations_.assign(1, result.data);
    return reduce_shown(0, mine.count, reduction);
  }
  own.read = mine.data;
  own.write = result.data;
  together([&] {
    const Slice slice =
        even_slice(mine.count, rank_, members(), cache_line_bytes / size_of(mine.type));
    destinations_.resize(members());
    for (std::size_t r = 0; r < members(); ++r) {
      destinations_[r] = static_cast<std::byte*>(shown(r).write) + slice.begin * size_of(mine.type);
    }
    reduce_shown(slice.begin, slice.count, reduction);
  });
}

void ThreadCommunicator::reduce(ConstBuffer mine, MutableBuffer result, RankId root,
                                Reduction reduction) {
  const std::size_t target = member(root);
  const bool here_it_ends = target == rank_;
  HETEROPERF_EXPECT(!here_it_ends || (mine.count == result.count && mine.type == result.type));
  ThreadOffer& own = offer(reduce_terms(mine, root, reduction));
  if (is_small(mine.bytes())) {
    show_small(mine);
    agree();
    if (!here_it_ends) return;
    destinations_.assign(1, result.data);
    return reduce_shown(0, mine.count, reduction);
  }
  own.read = mine.data;
  own.write = result.data;
  together([&] {
    const Slice slice =
        even_slice(mine.count, rank_, members(), cache_line_bytes / size_of(mine.type));
    destinations_.assign(
        1, static_cast<std::byte*>(shown(target).write) + slice.begin * size_of(mine.type));
    reduce_shown(slice.begin, slice.count, reduction);
  });
}

void ThreadCommunicator::broadcast(MutableBuffer values, RankId root) {
  const std::size_t origin = member(root);
  ThreadOffer& own = offer(broadcast_terms(values, root));
  const auto take = [&] {
    if (origin != rank_) copy(shown(origin).read, values.data, values.bytes());
  };
  if (is_small(values.bytes())) {
    if (origin == rank_) show_small(values);
    agree();
    return take();
  }
  own.read = values.data;
  together(take);
}

void ThreadCommunicator::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(all.type == mine.type);
  check_counts(counts, mine.count, all.count);
  ThreadOffer& own = offer(all_gather_terms(all, counts));
  const auto take = [&] {
    for_each_block(counts, [&](std::size_t r, Slice block) {
      const MutableBuffer to = part_of(all, block);
      copy(r == rank_ ? mine.data : shown(r).read, to.data, to.bytes());
    });
  };
  if (is_small(largest_of(counts) * size_of(mine.type))) {
    show_small(mine);
    agree();
    return take();
  }
  own.read = mine.data;
  together(take);
}

void ThreadCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                        Reduction reduction) {
  HETEROPERF_EXPECT(all.type == mine.type);
  check_counts(counts, mine.count, all.count);
  ThreadOffer& own = offer(reduce_scatter_terms(all, counts, reduction));
  const auto take = [&] {
    destinations_.assign(1, mine.data);
    reduce_shown(block_of(counts, rank_).begin, mine.count, reduction);
  };
  if (is_small(all.bytes())) {
    show_small(all);
    agree();
    return take();
  }
  own.read = all.data;
  together(take);
}

void ThreadCommunicator::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                                    Counts from_each) {
  HETEROPERF_EXPECT(mine.type == theirs.type);
  HETEROPERF_EXPECT(to_each.size() == members() && total_of(to_each) == mine.count);
  HETEROPERF_EXPECT(from_each.size() == members() && total_of(from_each) == theirs.count);
  ThreadOffer& own = offer(all_to_all_terms(mine));
  own.read = mine.data;
  own.to_each = to_each;
  own.from_each = from_each;
  together([&] {
    for (std::size_t to = 0; to < members(); ++to) {
      for (std::size_t from = 0; from < members(); ++from) {
        const std::size_t sent = shown(from).to_each[to], awaited = shown(to).from_each[from];
        if (sent == awaited) continue;
        throw Error(ErrorKind::run_failed,
                    {counts_disagreement(mine.type, group_->members[from], sent,
                                         group_->members[to], awaited)});
      }
    }
    for_each_block(from_each, [&](std::size_t r, Slice block) {
      const ThreadOffer& other = shown(r);
      const ConstBuffer from =
          part_of(ConstBuffer(other.read, 0, mine.type), block_of(other.to_each, rank_));
      copy(from.data, part_of(theirs, block).data, from.bytes());
    });
  });
}

void ThreadCommunicator::barrier() {
  offer(barrier_terms());
  agree();
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int colour, int key) {
  const CollectiveTerms terms = split_terms();
  ThreadOffer& own = offer(terms);
  own.colour = colour;
  own.key = key;
  agree();
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < members(); ++r) {
    if (shown(r).colour == colour) order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](std::size_t a, std::size_t b) { return shown(a).key < shown(b).key; });
  if (order.front() == rank_) {
    std::vector<RankId> ranks;
    for (std::size_t r : order) ranks.push_back(group_->members[r]);
    group_->children[rank_] = std::make_shared<ThreadGroup>(group_->world, std::move(ranks));
    group_->world->add(group_->children[rank_]);
  }
  offer(terms);
  std::shared_ptr<ThreadGroup> child;
  together([&] { child = group_->children[order.front()]; });
  if (order.front() == rank_) group_->children[rank_].reset();
  const auto position = std::find(order.begin(), order.end(), rank_) - order.begin();
  return std::make_unique<ThreadCommunicator>(std::move(child), static_cast<std::size_t>(position));
}

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
