#include "runners/comm/paced/paced_communicator.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/paced/link_clock.hpp"

// A paced message is two messages of the transport below: a note with its modelled arrival, and the
// payload. Both move as fast as they can; the waits end at the modelled time:
//
//     sender    posts note and payload ─────┤ sleeps until the message leaves ├
//     receiver  ────── note and payload are here ┤ sleeps until the message arrives ├
//
// The modelled times are known when the message is posted, so a rank that wakes late does not make
// the next message of a collective late.

namespace heteroperf {
namespace {

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

class PacedCommunicator final : public Communicator, public TimedOperations {
 public:
  explicit PacedCommunicator(std::shared_ptr<PacedGroup> group)
      : group_(std::move(group)), collectives_(*this) {}

  RankId rank() const override { return group_->inner->rank(); }
  int size() const override { return group_->inner->size(); }
  std::string transport() const override { return "paced " + group_->inner->transport(); }
  std::string one_thread_reason() const override { return group_->inner->one_thread_reason(); }
  PaceReport report() const { return group_->state->report(); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override {
    in_time([&] { collectives_.all_reduce(mine, result, reduction); });
  }
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) override {
    in_time([&] { collectives_.reduce(mine, result, root, reduction); });
  }
  void broadcast(MutableBuffer values, RankId root) override {
    in_time([&] { collectives_.broadcast(values, root); });
  }
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override {
    in_time([&] { collectives_.all_gather(mine, all, counts); });
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override {
    in_time([&] { collectives_.reduce_scatter(all, mine, counts, reduction); });
  }
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override {
    in_time([&] { collectives_.all_to_all(mine, to_each, theirs, from_each); });
  }
  void barrier() override {
    in_time([&] { collectives_.barrier(); });
  }

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
  template <class Operation>
  void in_time(Operation operation) {
    const InCollective inside(in_collective_);
    const OperationScope scope(*this);
    operation();
  }
  /// The messages of this group's collectives have special tags, because the group also carries
  /// the collectives of a group on top of it.
  int transport_tag(int tag) const {
    if (in_collective_) return tag + message_tags::inside_transport;
    check_users_tag(tag, message_tags::first_inside_transport);
    return tag;
  }

  std::shared_ptr<PacedGroup> group_;
  MessageCollectives collectives_;
  bool in_collective_ = false;
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
