#include "runners/comm/paced/paced_communicator.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/control/socket.hpp"
#include "runners/comm/paced/link_clock.hpp"

// A paced message is two messages of the transport below: a note with its modelled arrival, and the
// payload. Both move as fast as they can; the waits end at the modelled time:
//
//     sender    posts note and payload ─────┤ sleeps until the message leaves ├
//     receiver  ────── note and payload are here ┤ sleeps until the message arrives ├
//
// The modelled times are known when the message is posted, so a rank that wakes late does not make
// the next message of a collective late.
//
// Every rank models the links on which it sends, and its cards. A card belongs to all ranks of a
// host that name it, so its bucket lies in memory which these ranks share: the first rank of a host
// makes it under a random name, the others open it, and then the name is removed. Where one rank of
// the world cannot do that, nobody does, and each rank has an equal share of the card's bandwidth.

namespace heteroperf {
namespace {

/// A sleeper looks so often whether the run still goes on.
constexpr Instant look_period = 50'000'000;
/// After the wish to stop, transfers have so long to end.
constexpr Instant stop_patience = 2'000'000'000;

/// Memory of this host under a name. The rank that made it removes the name at the end, when all
/// ranks that share it have it open.
class NamedMemory {
 public:
  NamedMemory(std::uint64_t key, std::size_t bytes)
      : name_(fmt::format("/heteroperf-cards-{:016x}", key)), bytes_(bytes) {}
  ~NamedMemory() {
    if (made_) shm_unlink(name_.c_str());
  }
  NamedMemory(const NamedMemory&) = delete;
  NamedMemory& operator=(const NamedMemory&) = delete;

  /// Both return null when the memory cannot be had. New memory is zero.
  std::shared_ptr<Bucket> make() {
    const Descriptor file(shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    made_ = static_cast<bool>(file);
    return made_ && ftruncate(file.fd(), static_cast<off_t>(bytes_)) == 0 ? map(file) : nullptr;
  }
  std::shared_ptr<Bucket> open() {
    const Descriptor file(shm_open(name_.c_str(), O_RDWR, 0));
    return file ? map(file) : nullptr;
  }

 private:
  std::shared_ptr<Bucket> map(const Descriptor& file) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
    if (memory == MAP_FAILED) return nullptr;
    return {static_cast<Bucket*>(memory),
            [bytes = bytes_](Bucket* buckets) { munmap(buckets, bytes); }};
  }

  std::string name_;
  std::size_t bytes_;
  bool made_ = false;
};

/// True on all ranks when it is true on each. Collective.
bool everywhere(Communicator& world, bool here) {
  std::int32_t all = here ? 1 : 0;
  world.all_reduce(std::span<std::int32_t>(&all, 1), Reduction::min);
  return all == 1;
}

std::size_t card_index(const Cluster& cluster, const std::string& name) {
  const auto card = std::ranges::find(cluster.cards, name, &NetworkCard::name);
  HETEROPERF_EXPECT(card != cluster.cards.end());
  return static_cast<std::size_t>(card - cluster.cards.begin());
}

/// Clock and key of every rank. Ranks with one clock are on one host; the first of them is the
/// host's leader, whose key names the shared memory.
struct Hosts {
  std::vector<std::int64_t> clocks, keys;
  std::size_t self;

  explicit Hosts(Communicator& world)
      : clocks(world.size()), keys(clocks.size()), self(world.rank().index()) {
    auto clock = static_cast<std::int64_t>(host_clock_id());
    // A rank that does not know its clock counts as a host by itself.
    if (clock == 0) clock = -1 - static_cast<std::int64_t>(self);
    const auto key = static_cast<std::int64_t>(unpredictable_bits());
    world.all_gather(std::span<const std::int64_t>(&clock, 1), std::span<std::int64_t>(clocks));
    world.all_gather(std::span<const std::int64_t>(&key, 1), std::span<std::int64_t>(keys));
  }
  bool same(std::size_t rank) const { return clocks[rank] == clocks[self]; }
  std::size_t leader() const {
    return static_cast<std::size_t>(std::ranges::find(clocks, clocks[self]) - clocks.begin());
  }
};

/// The cards of a cluster as one rank sees them. Ranks of one host that name the same card share
/// its bucket through shared memory, be they threads or processes; where that cannot be had, each
/// rank has an equal share of the bandwidth to itself.
class CardTable {
 public:
  /// Collective over `world`, whose ranks are those of the cluster.
  /// A card is shared in memory only when all ranks that use it have this rank's clock, since
  /// buckets hold times of that clock.
  CardTable(Communicator& world, const Cluster& cluster)
      : private_buckets_(std::make_unique<Bucket[]>(cluster.cards.size())) {
    const Hosts hosts(world);
    for (std::size_t r = 0; r < hosts.clocks.size(); ++r) same_clock_.push_back(hosts.same(r));
    const std::size_t cards = cluster.cards.size();
    const bool shared = cards > 0 && share_memory(world, hosts, cards);

    for (const std::string& name : cluster.ranks[hosts.self].cards) {
      const std::size_t card = card_index(cluster, name);
      std::size_t users = 0;
      bool here = shared;
      for (std::size_t r = 0; r < cluster.ranks.size(); ++r) {
        const auto uses = std::ranges::count(cluster.ranks[r].cards, name);
        users += uses > 0;
        here = here && (uses == 0 || hosts.same(r));
      }
      const NetworkCard& limit = cluster.cards[card];
      if (here) {
        cards_.push_back({shared_.get() + card, limit.bandwidth, limit.burst});
      } else {
        const double part = limit.bandwidth.value() / static_cast<double>(users);
        cards_.push_back(
            {&private_buckets_[card], BytesPerSecond(part), Bytes(limit.burst.value() / users)});
        if (users > 1) is_divided_ = true;
      }
    }
  }
  /// The first of this rank's cards that is free. Without a bucket when the rank has no card, or
  /// one without limit.
  CardUse nearest_free() const {
    CardUse best;
    for (const CardUse& card : cards_) {
      if (card.bandwidth.value() <= 0) return {};
      if (!best.bucket || card.bucket->free_at() < best.bucket->free_at()) best = card;
    }
    return best;
  }
  /// True where each rank has an equal share of a card for itself.
  bool is_divided() const { return is_divided_; }
  /// True for ranks whose clock is this rank's.
  bool same_clock(RankId rank) const { return same_clock_[rank.index()]; }

 private:
  /// All ranks of the world come to the same decision.
  bool share_memory(Communicator& world, const Hosts& hosts, std::size_t cards) {
    const std::size_t leader = hosts.leader();
    NamedMemory memory(static_cast<std::uint64_t>(hosts.keys[leader]), cards * sizeof(Bucket));
    if (leader == hosts.self) shared_ = memory.make();
    const bool made = everywhere(world, leader != hosts.self || shared_);
    if (made && leader != hosts.self) shared_ = memory.open();
    return everywhere(world, made && shared_);
  }

  std::vector<bool> same_clock_;
  std::unique_ptr<Bucket[]> private_buckets_;
  std::shared_ptr<Bucket> shared_;  ///< memory of this host; one for each card of the cluster
  std::vector<CardUse> cards_;      ///< this rank's, nearest first
  bool is_divided_ = false;
};

/// One rank's part of the model, for all groups it is in. Ranks are those of the world. Any thread
/// may call it.
class PaceState {
 public:
  /// Collective over `world`. `control` may be null.
  PaceState(Communicator& world, Cluster cluster, std::shared_ptr<const ControlChannel> control)
      : cluster_(std::move(cluster)),
        self_(world.rank()),
        control_(std::move(control)),
        cards_(world, cluster_),
        links_(cluster_.ranks.size()) {
    report_.cards_divided = cards_.is_divided();
  }

  RankId self() const { return self_; }
  bool same_clock(RankId rank) const { return cards_.same_clock(rank); }
  /// Takes card and link for a message and returns its modelled times.
  Passage send(Instant posted, Bytes size, RankId to) {
    const LinkCurve& curve = cluster_.link(self_, to);
    const bool by_card = leaves_host(cluster_.ranks[self_.index()], cluster_.ranks[to.index()]);
    std::lock_guard lock(mutex_);
    return pass(posted, size, curve, links_[to.index()],
                by_card ? cards_.nearest_free() : CardUse());
  }
  /// A wait has ended by `late` too late, for a message that the model gives `took`.
  void waited(Instant late, Instant took) {
    std::lock_guard lock(mutex_);
    ++report_.waits;
    report_.late_waits += late > took / 100;
    report_.greatest_lag = std::max(report_.greatest_lag, Seconds(static_cast<double>(late) / 1e9));
  }
  /// Called in a wait until `due`. Throws PeerError once the run has failed, and
  /// Error{interrupted} two seconds after it was asked to stop.
  void check_run(Instant due) {
    if (!control_) return;
    if (const auto failure = control_->failure()) throw PeerError(*failure, "a paced transfer");
    if (!control_->stop_requested()) return;
    const Instant now = host_now();
    Instant seen = 0;
    if (stop_seen_.compare_exchange_strong(seen, now)) seen = now;
    if (now - seen < stop_patience || due - now < look_period) return;
    throw Error(ErrorKind::interrupted,
                {{"stopped during a paced transfer",
                  fmt::format("it had {:.3g} s to go", static_cast<double>(due - now) / 1e9), ""}});
  }
  /// Sleeps until `due` and calls check_run() now and then.
  void sleep_until(Instant due) {
    for (Instant now = host_now(); due - now > look_period; now = host_now()) {
      nap_until(now + look_period);
      check_run(due);
    }
    heteroperf::sleep_until(due);
  }
  PaceReport report() const {
    std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  const Cluster cluster_;
  const RankId self_;
  const std::shared_ptr<const ControlChannel> control_;
  std::atomic<Instant> stop_seen_{0};
  CardTable cards_;
  std::vector<Bucket> links_;  ///< to each rank
  mutable std::mutex mutex_;   ///< guards the links and the report
  PaceReport report_;
};

/// A rank that sleeps looks so often after its other messages.
constexpr Instant look_after = 200000;

/// The note that travels before every message: its modelled arrival, and its time on the way.
using Note = std::array<std::int64_t, 2>;

class PacedTransfer;

/// The state that a communicator and its transfers share.
struct PacedGroup {
  std::unique_ptr<Communicator> inner;
  std::vector<RankId> members;  ///< ranks of the world
  std::shared_ptr<PaceState> state;
  RankTimeline timeline;
  std::vector<PacedTransfer*> open;

  RankId world_rank(RankId rank) const {
    HETEROPERF_EXPECT(rank.index() < members.size());
    return members[rank.index()];
  }
};

/// A message that has ended once its note and its payload are through and the modelled time has
/// come.
class PacedTransfer final : public Transfer {
 public:
  PacedTransfer(std::shared_ptr<PacedGroup> group, const Outgoing& message);
  PacedTransfer(std::shared_ptr<PacedGroup> group, const Incoming& message);
  ~PacedTransfer() override { close(); }
  PacedTransfer(const PacedTransfer&) = delete;
  PacedTransfer& operator=(const PacedTransfer&) = delete;

  bool test() override {
    if (over_) return true;
    if (!moved() || host_now() < due_) {
      group_->state->check_run(due_);
      return false;
    }
    close();
    return true;
  }
  void wait() override {
    if (over_) return;
    const Instant began = group_->timeline.now(host_now());
    if (note_transfer_) {
      note_transfer_->wait();
      note_is_here();
    }
    if (payload_) {
      payload_->wait();
      payload_.reset();
    }
    sleep();
    group_->state->waited(group_->timeline.waited(began, due_, host_now()), note_[1]);
    close();
  }

 private:
  /// True when the transport below is through with note and payload.
  bool moved() {
    if (note_transfer_ && note_transfer_->test()) note_is_here();
    if (payload_ && payload_->test()) payload_.reset();
    return !note_transfer_ && !payload_;
  }
  void note_is_here() {
    note_transfer_.reset();
    if (sender_) return;
    // The clock of another host says nothing here, so only the time on the way counts.
    due_ = same_clock_ ? note_[0] : host_now() + note_[1];
  }
  /// The transport below may need calls to make progress with this rank's other messages.
  void sleep() {
    PaceState& state = *group_->state;
    while (group_->open.size() > 1 && due_ - host_now() > 2 * look_after) {
      nap_until(host_now() + look_after);
      state.check_run(due_);
      for (PacedTransfer* transfer : group_->open) transfer->moved();
    }
    state.sleep_until(due_);
  }
  void open() { group_->open.push_back(this); }
  void close() {
    if (over_) return;
    over_ = true;
    std::erase(group_->open, this);
  }

  std::shared_ptr<PacedGroup> group_;
  Note note_{};
  std::unique_ptr<Transfer> note_transfer_, payload_;  ///< null once over
  Instant due_ = 0;
  bool sender_;
  bool same_clock_ = true;
  bool over_ = false;
};

PacedTransfer::PacedTransfer(std::shared_ptr<PacedGroup> group, const Outgoing& message)
    : group_(std::move(group)), sender_(true) {
  const Passage passage =
      group_->state->send(group_->timeline.now(host_now()), Bytes(message.values.bytes()),
                          group_->world_rank(message.to));
  note_ = {passage.arrives, passage.took()};
  due_ = passage.leaves;
  note_transfer_ =
      group_->inner->start_send(std::span(std::as_const(note_)), message.to, message.tag);
  payload_ = group_->inner->start_send(message.values, message.to, message.tag);
  open();
}

PacedTransfer::PacedTransfer(std::shared_ptr<PacedGroup> group, const Incoming& message)
    : group_(std::move(group)), sender_(false) {
  same_clock_ = group_->state->same_clock(group_->world_rank(message.from));
  note_transfer_ = group_->inner->start_receive(std::span(note_), message.from, message.tag);
  payload_ = group_->inner->start_receive(message.values, message.from, message.tag);
  open();
}

class PacedCommunicator final : public MessageCommunicator, public TimedOperations {
 public:
  explicit PacedCommunicator(std::shared_ptr<PacedGroup> group) : group_(std::move(group)) {}

  RankId rank() const override { return group_->inner->rank(); }
  int size() const override { return group_->inner->size(); }
  std::string transport() const override { return "paced " + group_->inner->transport(); }
  std::string one_thread_reason() const override { return group_->inner->one_thread_reason(); }
  PaceReport report() const { return group_->state->report(); }

  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    tag = transport_tag(tag);
    if (to == rank()) return group_->inner->start_send(values, to, tag);
    return std::make_unique<PacedTransfer>(group_, Outgoing{values, to, tag});
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    tag = transport_tag(tag);
    if (from == rank()) return group_->inner->start_receive(values, from, tag);
    return std::make_unique<PacedTransfer>(group_, Incoming{values, from, tag});
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto part = std::make_shared<PacedGroup>();
    part->inner = group_->inner->split(colour, key);
    part->state = group_->state;
    const std::int32_t self = group_->state->self().value();
    std::vector<std::int32_t> members(part->inner->size());
    part->inner->all_gather(std::span<const std::int32_t>(&self, 1),
                            std::span<std::int32_t>(members));
    for (std::int32_t member : members) part->members.emplace_back(member);
    return std::make_unique<PacedCommunicator>(std::move(part));
  }

  void begin_operation() override { group_->timeline.begin_operation(); }
  void end_operation() override { group_->timeline.end_operation(); }

 private:
  /// The messages of this group's collectives have special tags, because the group also carries
  /// the collectives of a group on top of it.
  int transport_tag(int tag) const {
    if (in_collective()) return tag + message_tags::inside_transport;
    check_users_tag(tag, message_tags::first_inside_transport);
    return tag;
  }

  std::shared_ptr<PacedGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_paced_communicator(
    std::unique_ptr<Communicator> world, Cluster cluster,
    std::shared_ptr<const ControlChannel> control) {
  check_cluster(cluster);
  const auto ranks = static_cast<int>(cluster.ranks.size());
  if (ranks != world->size()) {
    throw UserError(fmt::format("cluster '{}' has {} ranks, the run has {}", cluster.name, ranks,
                                world->size()),
                    "every rank takes one place of the cluster",
                    fmt::format("Use --ranks {}, or another cluster file", ranks));
  }
  auto group = std::make_shared<PacedGroup>();
  group->state = std::make_shared<PaceState>(*world, std::move(cluster), std::move(control));
  group->inner = std::move(world);
  for (int r = 0; r < ranks; ++r) group->members.emplace_back(r);
  return std::make_unique<PacedCommunicator>(std::move(group));
}

std::optional<PaceReport> pace_report(const Communicator& communicator) {
  const auto* paced = dynamic_cast<const PacedCommunicator*>(&communicator);
  if (!paced) return std::nullopt;
  return paced->report();
}

}  // namespace heteroperf
