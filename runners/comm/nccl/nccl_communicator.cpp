#include <sched.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/collective_terms.hpp"
#include "runners/comm/control_channel.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "runners/comm/nccl/nccl_library.hpp"
#include "runners/comm/slice.hpp"

// A communicator over NCCL. Every collective is one call of the library, or several as one NCCL
// group where the library has no such collective: NCCL knows no blocks of unequal sizes and no
// all-to-all. A call waits until the handle is free, enqueues, and then waits for the stream.
//
// NCCL's calls return before they have ended, in two stages: the handle is in progress while the
// library takes a call in (it may connect to peers meanwhile), and the stream is busy until the
// data have moved. Neither ends when a peer dies, so every wait polls both and asks the watch.
//
// Messages have numbers in the order in which they are started:
//
//     1 2 3 | 4 5 | 6 7
//           ▲     ▲
//      ended_     handed_over_       6 and 7 are queued; they become the next group
//
// Only one group of messages is under way at a time.

namespace heteroperf {
namespace {

constexpr int spins = 1000;

/// One group's handle and the waits for its operations; shared with messages under way. Every wait
/// looks at the stream, the library's asynchronous error and the watch, and aborts the handle when
/// one of them reports a failure.
class NcclHandle {
 public:
  NcclHandle(std::shared_ptr<NcclLibrary> library, std::vector<RankId> members,
             std::shared_ptr<PeerWatch> watch)
      : library_(std::move(library)), members_(std::move(members)), watch_(std::move(watch)) {}
  /// Leaves the group in order, or aborts it while an exception is on its way.
  ~NcclHandle() {
    // While an exception is on its way the other ranks may never come to leave in order.
    if (handle_ == nullptr || std::uncaught_exceptions() > 0) {
      abort();
      return;
    }
    try {
      await_handle(library_->finalize(handle_), "leaving the group");
      library_->destroy(handle_);
    } catch (const std::exception&) {
      abort();
    }
  }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  NcclLibrary& library() { return *library_; }
  const std::shared_ptr<NcclLibrary>& shared_library() const { return library_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  const std::vector<RankId>& members() const { return members_; }
  void*& handle() { return handle_; }

  /// Waits until the library may be called: all messages that were handed over have ended.
  void ready(const std::string& operation) {
    check_whole(operation);
    wait(handed_over_, operation);
  }
  /// Waits until handle and stream are idle. `first` is the answer of the call itself.
  void settle(const NcclStatus& first, const std::string& operation) {
    await_handle(first, operation);
    poll({NcclStatus::State::in_progress, {}}, operation, [this] { return stream_and_handle(); });
  }
  /// Waits until the library has taken in its last call; the stream may go on.
  void await_handle(const NcclStatus& first, const std::string& operation) {
    check(first, operation);
    check_whole(operation);
    poll(first, operation, [this] { return library_->status(handle_); });
  }

  /// Makes several calls of the library as one group; `enqueue` passes each call's answer to
  /// `note`.
  template <class Enqueue>
  NcclStatus grouped(Enqueue enqueue) {
    NcclStatus worst;
    library_->group_start();
    enqueue([&worst](NcclStatus status) {
      if (status.state == NcclStatus::State::failed) worst = std::move(status);
    });
    NcclStatus end = library_->group_end();
    return worst.state == NcclStatus::State::failed ? worst : end;
  }

  /// Adds a message to those that were started and not yet handed to the library; they are one
  /// group, which cannot block itself. Returns the number of the message, from 1.
  std::uint64_t queue(std::function<NcclStatus()> message) {
    queued_.push_back(std::move(message));
    return last();
  }
  /// The number of the message that was queued last.
  std::uint64_t last() const { return handed_over_ + queued_.size(); }
  /// True when the message of that number has ended. Hands over the queued messages as soon as the
  /// group before has ended; does not wait.
  bool test(std::uint64_t message, const std::string& operation) {
    if (message <= ended_) return true;
    check_whole(operation);
    look_after_peers(operation);
    if (handed_over_ == ended_ && !queued_.empty()) hand_over(operation);
    if (handed_over_ == ended_) return false;
    NcclStatus status;
    if (!taken_in_) status = library_->status(handle_);
    taken_in_ = status.state == NcclStatus::State::done;
    if (taken_in_) status = stream_and_handle();
    check(status, operation);
    if (status.state == NcclStatus::State::done) ended_ = handed_over_;
    return message <= ended_;
  }
  void wait(std::uint64_t message, const std::string& operation) {
    for (int round = 0; !test(message, operation); ++round) {
      if (round >= spins) sched_yield();
    }
  }

 private:
  template <class Ask>
  void poll(NcclStatus status, const std::string& operation, Ask ask) {
    for (int round = 0; status.state == NcclStatus::State::in_progress; ++round) {
      look_after_peers(operation);
      if (round >= spins) sched_yield();
      status = ask();
    }
    check(status, operation);
  }
  void look_after_peers(const std::string& operation) {
    const auto failure = watch_->failure_among(members_);
    if (!failure) return;
    abort();
    throw PeerError(*failure, operation);
  }
  /// The stream's status, or the handle's when that failed: a peer's death shows as an asynchronous
  /// error while the stream hangs.
  NcclStatus stream_and_handle() {
    const NcclStatus stream = library_->stream_status();
    if (stream.state != NcclStatus::State::in_progress) return stream;
    const NcclStatus error = library_->status(handle_);
    return error.state == NcclStatus::State::failed ? error : stream;
  }
  void hand_over(const std::string& operation) {
    const auto messages = std::exchange(queued_, {});
    const NcclStatus end = grouped([&messages](auto note) {
      for (const auto& message : messages) note(message());
    });
    check(end, operation);
    taken_in_ = end.state == NcclStatus::State::done;
    handed_over_ += messages.size();
  }
  void check(const NcclStatus& status, const std::string& operation) {
    if (status.state == NcclStatus::State::failed) fail(status.text, operation);
  }
  [[noreturn]] void fail(const std::string& text, const std::string& operation) {
    abort();
    throw SystemError("NCCL failed during " + operation, text,
                      "NCCL_DEBUG=INFO prints what the library did.");
  }
  void check_whole(const std::string& operation) {
    if (handle_ == nullptr) fail("the group is broken by an earlier failure", operation);
  }
  void abort() noexcept {
    if (handle_ != nullptr) library_->abort(handle_);
    handle_ = nullptr;
  }

  std::shared_ptr<NcclLibrary> library_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  void* handle_ = nullptr;
  std::vector<std::function<NcclStatus()>> queued_;
  std::uint64_t handed_over_ = 0, ended_ = 0;  ///< messages; those between are under way
  bool taken_in_ = true;                       ///< the library has taken in all that is under way
};

/// One message under way, known to the handle by its number.
class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(std::shared_ptr<NcclHandle> group, std::uint64_t message, std::string operation)
      : group_(std::move(group)), message_(message), operation_(std::move(operation)) {}

  bool test() override { return group_->test(message_, operation_); }
  void wait() override { group_->wait(message_, operation_); }

 private:
  std::shared_ptr<NcclHandle> group_;
  std::uint64_t message_;  ///< 0: a message without elements, which is never sent
  std::string operation_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclHandle> group, RankId rank)
      : group_(std::move(group)), rank_(rank), word_(library().memory(), sizeof(std::int64_t)) {}

  RankId rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->members().size()); }
  std::string transport() const override { return "nccl"; }
  BufferMemory& memory() override { return library().memory(); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    HETEROPERF_EXPECT(input.count == result.count && input.type == result.type);
    if (input.count == 0) return;
    run(describe("all_reduce", input),
        [&] { return library().all_reduce(input, result.data, reduction, handle()); });
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    if (input.count == 0) return;
    void* out = rank_ == root ? result.data : nullptr;
    run(describe("reduce", input),
        [&] { return library().reduce(input, out, reduction, peer(root), handle()); });
  }
  void broadcast(MutableBuffer values, RankId root) override {
    if (values.count == 0) return;
    run(describe("broadcast", values),
        [&] { return library().broadcast(values, peer(root), handle()); });
  }
  /// Blocks of unequal sizes are broadcasts, one for each rank, all in one group.
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    check_blocks(*this, counts, input, all);
    const std::string operation = describe("all_gather", input);
    if (are_equal(counts)) {
      if (input.count == 0) return;
      return run(operation, [&] { return library().all_gather(input, all.data, handle()); });
    }
    const MutableBuffer my_block = part_of(all, block_of(counts, rank_.index()));
    if (my_block.data != input.data) library().copy(my_block.data, input.data, input.bytes());
    run_grouped(operation, [&](auto note) {
      for_each_block(counts, [&](std::size_t r, Slice block) {
        if (block.count == 0) return;
        note(library().broadcast(part_of(all, block), static_cast<int>(r), handle()));
      });
    });
  }
  /// Blocks of unequal sizes are reductions, one for each rank, all in one group.
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    check_blocks(*this, counts, result, all);
    const std::string operation = describe("reduce_scatter", all);
    if (are_equal(counts)) {
      if (result.count == 0) return;
      return run(operation,
                 [&] { return library().reduce_scatter(all, result, reduction, handle()); });
    }
    run_grouped(operation, [&](auto note) {
      for_each_block(counts, [&](std::size_t r, Slice block) {
        if (block.count == 0) return;
        void* out = r == rank_.index() ? result.data : nullptr;
        note(library().reduce(part_of(all, block), out, reduction, static_cast<int>(r), handle()));
      });
    });
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    check_exchange(*this, input, to_each, result, from_each);
    run_grouped(describe("all_to_all", input), [&](auto note) {
      for (std::size_t r = 0; r < members(); ++r) {
        const Slice out = block_of(to_each, r), in = block_of(from_each, r);
        const int rank = static_cast<int>(r);
        if (out.count > 0) note(library().send(part_of(input, out), rank, handle()));
        if (in.count > 0) note(library().receive(part_of(result, in), rank, handle()));
      }
    });
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int) override {
    return start("send", values, [group = group_.get(), values, to = peer(to)] {
      return group->library().send(values, to, group->handle());
    });
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int) override {
    return start("receive", values, [group = group_.get(), values, from = peer(from)] {
      return group->library().receive(values, from, group->handle());
    });
  }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    for (const Incoming& in : receives) start_receive(in.values, in.from, in.tag);
    for (const Outgoing& out : sends) start_send(out.values, out.to, out.tag);
    group_->wait(group_->last(), "exchange");
  }
  /// NCCL has no barrier, so one number is reduced.
  void barrier() override {
    const MutableBuffer word(word_.data(), 1, DataType::i32);
    run("barrier", [&] { return library().all_reduce(word, word.data, Reduction::max, handle()); });
  }
  /// All ranks gather all wishes, so every member knows the members of the new group.
  std::unique_ptr<Communicator> split(int colour, int key) override {
    const SplitWish wish{colour, key};
    std::vector<SplitWish> wishes(members());
    const std::size_t bytes = wishes.size() * sizeof wish;
    MemoryBlock local(memory(), sizeof wish), all(memory(), bytes);
    memory().write(local.data(), &wish, sizeof wish);
    all_gather(ConstBuffer(local.data(), 2, DataType::i32),
               MutableBuffer(all.data(), 2 * members(), DataType::i32));
    memory().read(wishes.data(), all.data(), bytes);
    const SplitGroup part = split_group(wishes, rank_.index());
    auto group = std::make_shared<NcclHandle>(group_->shared_library(),
                                              part.members(group_->members()), group_->watch());
    const int new_rank = static_cast<int>(part.self_place);
    group_->await_handle(library().split(handle(), part.colour, new_rank, group->handle()),
                         "split");
    group->await_handle({NcclStatus::State::in_progress, {}}, "split");
    return std::make_unique<NcclCommunicator>(std::move(group), RankId(new_rank));
  }

 private:
  NcclLibrary& library() const { return group_->library(); }
  void* handle() const { return group_->handle(); }
  std::size_t members() const { return group_->members().size(); }
  int peer(RankId rank) const {
    HETEROPERF_EXPECT(rank.index() < members());
    return rank.value();
  }
  /// Waits until the library is free, makes one call of it and waits for its end.
  template <class Call>
  void run(const std::string& operation, Call call) {
    group_->ready(operation);
    group_->settle(call(), operation);
  }
  template <class Enqueue>
  void run_grouped(const std::string& operation, Enqueue enqueue) {
    run(operation, [&] { return group_->grouped(enqueue); });
  }
  std::unique_ptr<Transfer> start(const char* operation, ConstBuffer values,
                                  std::function<NcclStatus()> message) {
    const std::uint64_t number = values.count > 0 ? group_->queue(std::move(message)) : 0;
    return std::make_unique<NcclTransfer>(group_, number, describe(operation, values));
  }

  std::shared_ptr<NcclHandle> group_;
  RankId rank_;
  MemoryBlock word_;  ///< the data of barriers
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<NcclLibrary> library,
                                                     const NcclId& id, RankId rank,
                                                     std::vector<RankId> members,
                                                     std::shared_ptr<PeerWatch> watch) {
  const int ranks = static_cast<int>(members.size());
  auto group = std::make_shared<NcclHandle>(library, std::move(members), std::move(watch));
  const NcclStatus first = library->init(id, ranks, rank.value(), group->handle());
  group->await_handle(first, "joining the group");
  return std::make_unique<NcclCommunicator>(std::move(group), rank);
}

}  // namespace heteroperf
