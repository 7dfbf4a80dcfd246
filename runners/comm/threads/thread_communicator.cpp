#include "runners/comm/threads/thread_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runners/comm/element_types.hpp"
#include "runners/comm/threads/mailbox.hpp"
#include "runners/comm/threads/meeting.hpp"
#include "runners/comm/threads/wait_point.hpp"

namespace heteroperf {
namespace {

/// A send up to this size returns before its receiver has come.
constexpr std::size_t eager_bytes = 4096;
/// Slices start at multiples of a cache line, so that no two ranks write one line.
constexpr std::size_t line_bytes = 64;

class ThreadGroup;

/// What a rank shows the others while they are in a collective together.
struct Offer {
  Offer() = default;
  Offer(const char* name, ConstBuffer buffer) : operation(name), read(buffer) {}

  const char* operation = "";
  ConstBuffer read;
  MutableBuffer write;
  Reduction reduction = Reduction::sum;
  int root = 0;
  int colour = 0, key = 0;
  std::shared_ptr<ThreadGroup> group;  ///< made by the first rank of a colour
};

/// The part that the members of one group share.
class ThreadGroup final : public Wakeable {
 public:
  explicit ThreadGroup(std::vector<RankId> ranks)
      : members(std::move(ranks)),
        offers(members.size()),
        wait_points(members.size()),
        mailboxes(members.size()),
        meeting(static_cast<int>(members.size())) {}

  void wake_everyone() override {
    for (WaitPoint& point : wait_points) point.wake();
  }

  const std::vector<RankId> members;  ///< ranks of the world
  std::vector<Offer> offers;
  std::vector<WaitPoint> wait_points;
  std::vector<Mailbox> mailboxes;
  Meeting meeting;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group,
                     int rank)
      : world_(std::move(world)),
        group_(std::move(group)),
        rank_(static_cast<std::size_t>(rank)),
        sources_(group_->members.size()),
        destinations_(group_->members.size()) {}

  RankId rank() const override { return RankId(static_cast<std::int32_t>(rank_)); }
  int size() const override { return static_cast<int>(group_->members.size()); }
  std::string transport() const override { return "threads"; }

  void all_reduce(MutableBuffer values, Reduction reduction) override;
  void broadcast(MutableBuffer values, RankId root) override;
  void all_gather(ConstBuffer mine, MutableBuffer all) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction reduction) override;
  void send(ConstBuffer values, RankId to, int tag) override;
  void receive(MutableBuffer values, RankId from, int tag) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int colour, int key) override;

 private:
  std::size_t members() const { return group_->members.size(); }
  std::size_t member(RankId rank) const;
  WaitPoint& here() { return group_->wait_points[rank_]; }

  /// Shows `offer`, runs `work` while every buffer shown stays in place, and waits for all.
  template <class Work>
  void together(Offer offer, Work work);
  void assemble(const Offer& offer);
  void disperse();
  /// All members decide alike, from the same offers.
  std::optional<Problem> mismatch() const;
  void await_claim(const std::shared_ptr<Letter>& letter, std::size_t to);
  std::shared_ptr<Letter> await_letter(std::size_t from, int tag, ConstBuffer values);

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  std::size_t rank_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

std::byte* at(MutableBuffer buffer, std::size_t offset) {
  return static_cast<std::byte*>(buffer.data) + offset * size_of(buffer.type);
}
const std::byte* at(ConstBuffer buffer, std::size_t offset) {
  return static_cast<const std::byte*>(buffer.data) + offset * size_of(buffer.type);
}
void copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0 && from != to) std::memmove(to, from, bytes);
}

/// Where part `index` of `parts` begins.
std::size_t slice_begin(std::size_t count, DataType type, std::size_t index, std::size_t parts) {
  const std::size_t unit = line_bytes / size_of(type);
  const std::size_t units = (count + unit - 1) / unit;
  return std::min(count, units * index / parts * unit);
}

std::string describe_offer(const Offer& offer) {
  return offer.read.data == nullptr && offer.read.count == 0
             ? offer.operation
             : describe(offer.operation, offer.read);
}

std::size_t ThreadCommunicator::member(RankId rank) const {
  HETEROPERF_EXPECT(rank.value() >= 0 && rank.value() < size());
  return static_cast<std::size_t>(rank.value());
}

template <class Work>
void ThreadCommunicator::together(Offer offer, Work work) {
  struct Dispersal {
    ThreadCommunicator& self;
    ~Dispersal() { self.disperse(); }
  };
  group_->offers[rank_] = offer;
  assemble(offer);
  Dispersal even_if_work_throws{*this};
  if (const auto problem = mismatch()) throw Error(ErrorKind::internal, {*problem});
  work();
}

void ThreadCommunicator::assemble(const Offer& offer) {
  std::uint32_t round = 0;
  Meeting& meeting = group_->meeting;
  Meeting::Outcome outcome = meeting.arrive(round);
  if (outcome == Meeting::Outcome::complete) return group_->wake_everyone();
  if (outcome == Meeting::Outcome::waiting) {
    here().wait(world_->spins(), [&] {
      outcome = meeting.look(round);
      return outcome != Meeting::Outcome::waiting || world_->in_vain(group_->members);
    });
    if (outcome == Meeting::Outcome::waiting) outcome = meeting.leave(round);
    if (outcome == Meeting::Outcome::complete) return;
    group_->wake_everyone();
  }
  const auto failure = world_->failure_among(group_->members);
  throw PeerError(failure.value_or(RankFailure{group_->members[rank_], ErrorKind::run_failed,
                                               "the group is broken by an earlier failure"}),
                  describe_offer(offer));
}

/// Nobody leaves this one early: each member is on its way here and waits for nothing else, and
/// its peers may still be reading or writing its buffers.
void ThreadCommunicator::disperse() {
  std::uint32_t round = 0;
  Meeting& meeting = group_->meeting;
  if (meeting.arrive(round) == Meeting::Outcome::complete) return group_->wake_everyone();
  here().wait(world_->spins(), [&] { return meeting.look(round) != Meeting::Outcome::waiting; });
}

std::optional<Problem> ThreadCommunicator::mismatch() const {
  const Offer& first = group_->offers[0];
  for (std::size_t r = 1; r < members(); ++r) {
    const Offer& other = group_->offers[r];
    if (std::strcmp(first.operation, other.operation) == 0 &&
        first.read.count == other.read.count && first.read.type == other.read.type &&
        first.reduction == other.reduction && first.root == other.root) {
      continue;
    }
    return Problem{fmt::format("the ranks of a group disagree: rank {} is in {}, rank {} in {}",
                               group_->members[0].value(), describe_offer(first),
                               group_->members[r].value(), describe_offer(other)),
                   "collectives need the same order, counts, types and root on every rank",
                   "Please report this with the command that caused it."};
  }
  return std::nullopt;
}

void ThreadCommunicator::all_reduce(MutableBuffer values, Reduction reduction) {
  Offer offer("all_reduce", values);
  offer.write = values;
  offer.reduction = reduction;
  together(offer, [&] {
    const std::size_t begin = slice_begin(values.count, values.type, rank_, members());
    const std::size_t end = slice_begin(values.count, values.type, rank_ + 1, members());
    if (members() == 1 || begin == end) return;
    // Each rank sums its slice from all buffers and writes it to all of them: one pass over
    // memory, and nobody else touches that slice.
    for (std::size_t r = 0; r < members(); ++r) {
      destinations_[r] = at(group_->offers[r].write, begin);
      sources_[r] = destinations_[r];
    }
    reduce_in_order(sources_, destinations_, end - begin, values.type, reduction);
  });
}

void ThreadCommunicator::broadcast(MutableBuffer values, RankId root) {
  const std::size_t origin = member(root);
  Offer offer("broadcast", values);
  offer.root = root.value();
  together(offer, [&] { copy(group_->offers[origin].read.data, values.data, values.bytes()); });
}

void ThreadCommunicator::all_gather(ConstBuffer mine, MutableBuffer all) {
  HETEROPERF_EXPECT(all.count == mine.count * members() && all.type == mine.type);
  together(Offer("all_gather", mine), [&] {
    for (std::size_t step = 0; step < members(); ++step) {
      const std::size_t r = (rank_ + step) % members();
      copy(group_->offers[r].read.data, at(all, r * mine.count), mine.bytes());
    }
  });
}

void ThreadCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction reduction) {
  HETEROPERF_EXPECT(all.count == mine.count * members() && all.type == mine.type);
  Offer offer("reduce_scatter", all);
  offer.reduction = reduction;
  together(offer, [&] {
    if (mine.count == 0) return;
    for (std::size_t r = 0; r < members(); ++r) {
      sources_[r] = at(group_->offers[r].read, rank_ * mine.count);
    }
    void* destination = mine.data;
    reduce_in_order(sources_, {&destination, 1}, mine.count, mine.type, reduction);
  });
}

void ThreadCommunicator::barrier() {
  together(Offer("barrier", {}), [] {});
}

void ThreadCommunicator::send(ConstBuffer values, RankId to, int tag) {
  const std::size_t receiver = member(to);
  auto letter = std::make_shared<Letter>();
  letter->from = static_cast<int>(rank_);
  letter->tag = tag;
  letter->values = values;
  const bool eager = values.bytes() <= eager_bytes;
  if (eager && values.bytes() > 0) {
    const auto* bytes = static_cast<const std::byte*>(values.data);
    letter->copy.assign(bytes, bytes + values.bytes());
    letter->values.data = letter->copy.data();
  }
  if (const auto failure = world_->failure_among({&group_->members[receiver], 1})) {
    throw PeerError(*failure, describe("send", values));
  }
  group_->mailboxes[receiver].put(letter);
  group_->wait_points[receiver].wake();
  if (!eager) await_claim(letter, receiver);
}

void ThreadCommunicator::await_claim(const std::shared_ptr<Letter>& letter, std::size_t to) {
  const std::span<const RankId> awaited(&group_->members[to], 1);
  const auto done = [&] { return letter->state.load() == Letter::State::done; };
  here().wait(world_->spins(), [&] { return done() || world_->in_vain(awaited); });
  if (done()) return;
  if (group_->mailboxes[to].withdraw(letter)) {
    throw PeerError(*world_->failure_among(awaited), describe("send", letter->values));
  }
  // The receiver is copying; the buffer must stay until it is through.
  here().wait(world_->spins(), done);
}

void ThreadCommunicator::receive(MutableBuffer values, RankId from, int tag) {
  const std::size_t sender = member(from);
  const std::shared_ptr<Letter> letter = await_letter(sender, tag, values);
  const ConstBuffer sent = letter->values;
  const bool fits = sent.count == values.count && sent.type == values.type;
  if (fits) copy(sent.data, values.data, values.bytes());
  letter->state = Letter::State::done;
  group_->wait_points[sender].wake();
  if (fits) return;
  throw Error(ErrorKind::internal,
              {{fmt::format("rank {} awaits {} {} with tag {}, rank {} sent {} {}",
                            group_->members[rank_].value(), values.count, to_string(values.type),
                            tag, group_->members[sender].value(), sent.count, to_string(sent.type)),
                "both sides need the same count and type",
                "Please report this with the command that caused it."}});
}

std::shared_ptr<Letter> ThreadCommunicator::await_letter(std::size_t from, int tag,
                                                         ConstBuffer values) {
  Mailbox& mailbox = group_->mailboxes[rank_];
  const std::span<const RankId> awaited(&group_->members[from], 1);
  while (true) {
    const std::size_t seen = mailbox.posted();
    // What a peer sent before it finished still arrives: look for trouble first, then for mail.
    const auto failure = world_->failure_among(awaited);
    if (auto letter = mailbox.take(static_cast<int>(from), tag)) return letter;
    if (failure) throw PeerError(*failure, describe("receive", values));
    here().wait(world_->spins(),
                [&] { return mailbox.posted() != seen || world_->in_vain(awaited); });
  }
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int colour, int key) {
  Offer offer("split", {});
  offer.colour = colour;
  offer.key = key;
  std::shared_ptr<ThreadGroup> group;
  std::size_t position = 0;
  std::vector<std::size_t> order;
  together(offer, [&] {
    for (std::size_t r = 0; r < members(); ++r) {
      if (group_->offers[r].colour == colour) order.push_back(r);
    }
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return group_->offers[a].key < group_->offers[b].key;
    });
    if (order.front() != rank_) return;
    std::vector<RankId> ranks;
    for (std::size_t r : order) ranks.push_back(group_->members[r]);
    group = std::make_shared<ThreadGroup>(std::move(ranks));
    world_->add(group);
  });
  // A second round hands the group over; the first had to show colours and keys.
  offer.group = group;
  together(offer, [&] { group = group_->offers[order.front()].group; });
  group_->offers[rank_].group.reset();
  position = static_cast<std::size_t>(std::find(order.begin(), order.end(), rank_) - order.begin());
  return std::make_unique<ThreadCommunicator>(world_, std::move(group), static_cast<int>(position));
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    const std::shared_ptr<ThreadWorld>& world, std::vector<RankId> members) {
  const int size = static_cast<int>(members.size());
  auto group = std::make_shared<ThreadGroup>(std::move(members));
  world->add(group);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(world, group, rank));
  }
  return communicators;
}

}  // namespace heteroperf
