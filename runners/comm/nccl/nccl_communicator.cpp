#include "runners/comm/nccl/nccl_communicator.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "metrics/error.hpp"
#include "runners/comm/element_types.hpp"

namespace heteroperf {
namespace {

constexpr int spins = 1000;

/// A handle and the way its operations are waited for; shared with transfers under way.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<NcclLibrary> library, std::vector<RankId> members,
            std::shared_ptr<PeerWatch> watch)
      : library_(std::move(library)), members_(std::move(members)), watch_(std::move(watch)) {}
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  NcclLibrary& library() { return *library_; }
  const std::shared_ptr<NcclLibrary>& shared_library() const { return library_; }
  const std::shared_ptr<PeerWatch>& watch() const { return watch_; }
  const std::vector<RankId>& members() const { return members_; }
  void*& handle() { return handle_; }

  /// Waits until the handle and the stream are idle. `first` is what the call itself answered.
  void settle(const NcclStatus& first, const std::string& operation);
  /// Waits until the library has taken in what it was asked; the stream may go on.
  void await_handle(const NcclStatus& first, const std::string& operation);

  /// Messages that were started and not yet handed to the library.
  void queue(std::function<NcclStatus()> message) { queued_.push_back(std::move(message)); }
  std::uint64_t queued_until() const { return flushed_ + queued_.size(); }
  bool flushed(std::uint64_t index) const { return index <= flushed_; }
  /// All queued messages as one group, which cannot block itself; waits for them.
  void flush(const std::string& operation);

 private:
  template <class Ask>
  void poll(NcclStatus status, const std::string& operation, Ask ask);
  [[noreturn]] void fail(const std::string& text, const std::string& operation);
  void abort() noexcept;

  std::shared_ptr<NcclLibrary> library_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  void* handle_ = nullptr;
  std::vector<std::function<NcclStatus()>> queued_;
  std::uint64_t flushed_ = 0;
};

NcclGroup::~NcclGroup() {
  if (handle_ == nullptr) return;
  try {
    await_handle(library_->finalize(handle_), "leaving the group");
    library_->destroy(handle_);
  } catch (const std::exception&) {
    abort();
  }
}

template <class Ask>
void NcclGroup::poll(NcclStatus status, const std::string& operation, Ask ask) {
  for (int round = 0; status.state == NcclStatus::State::in_progress; ++round) {
    if (const auto failure = watch_->failure_among(members_)) {
      abort();
      throw PeerError(*failure, operation);
    }
    if (round >= spins) sched_yield();
    status = ask();
  }
  if (status.state == NcclStatus::State::failed) fail(status.text, operation);
}

void NcclGroup::await_handle(const NcclStatus& first, const std::string& operation) {
  if (first.state == NcclStatus::State::failed) fail(first.text, operation);
  if (handle_ == nullptr) fail("the group is broken by an earlier failure", operation);
  poll(first, operation, [this] { return library_->status(handle_); });
}

void NcclGroup::settle(const NcclStatus& first, const std::string& operation) {
  await_handle(first, operation);
  // A peer's death shows as an asynchronous error while the stream hangs.
  poll({NcclStatus::State::in_progress, {}}, operation, [this] {
    const NcclStatus stream = library_->stream_status();
    if (stream.state != NcclStatus::State::in_progress) return stream;
    const NcclStatus error = library_->status(handle_);
    return error.state == NcclStatus::State::failed ? error : stream;
  });
}

void NcclGroup::fail(const std::string& text, const std::string& operation) {
  abort();
  throw SystemError("NCCL failed during " + operation, text,
                    "NCCL_DEBUG=INFO prints what the library did.");
}

void NcclGroup::abort() noexcept {
  if (handle_ != nullptr) library_->abort(handle_);
  handle_ = nullptr;
}

void NcclGroup::flush(const std::string& operation) {
  if (handle_ == nullptr) fail("the group is broken by an earlier failure", operation);
  if (queued_.empty()) return;
  const auto messages = std::move(queued_);
  queued_.clear();
  library_->group_start();
  NcclStatus worst;
  for (const auto& message : messages) {
    const NcclStatus status = message();
    if (status.state == NcclStatus::State::failed) worst = status;
  }
  const NcclStatus end = library_->group_end();
  if (worst.state == NcclStatus::State::failed) fail(worst.text, operation);
  settle(end, operation);
  flushed_ += messages.size();
}

bool all_equal(Counts counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::size_t count) { return count == counts[0]; });
}

class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(std::shared_ptr<NcclGroup> group, std::string operation)
      : group_(std::move(group)),
        index_(group_->queued_until()),
        operation_(std::move(operation)) {}

  /// The library offers no progress without a wait: a started group runs to its end.
  bool test() override {
    wait();
    return true;
  }
  void wait() override {
    if (!group_->flushed(index_)) group_->flush(operation_);
  }

 private:
  std::shared_ptr<NcclGroup> group_;
  std::uint64_t index_;
  std::string operation_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclGroup> group, RankId rank)
      : group_(std::move(group)), rank_(rank), word_(library().memory(), sizeof(std::int64_t)) {}

  RankId rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->members().size()); }
  std::string transport() const override { return "nccl"; }
  BufferMemory& memory() override { return library().memory(); }

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
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override;
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override;
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int colour, int key) override;

 private:
  NcclLibrary& library() const { return group_->library(); }
  void* handle() const { return group_->handle(); }
  int peer(RankId rank) const;
  /// Several calls as one group; `enqueue` returns each call's answer to `note`.
  template <class Enqueue>
  void grouped(const std::string& operation, Enqueue enqueue);

  std::shared_ptr<NcclGroup> group_;
  RankId rank_;
  MemoryBlock word_;  ///< of barriers
};

int NcclCommunicator::peer(RankId rank) const {
  HETEROPERF_EXPECT(rank.value() >= 0 && rank.value() < size());
  return rank.value();
}

template <class Enqueue>
void NcclCommunicator::grouped(const std::string& operation, Enqueue enqueue) {
  NcclStatus worst;
  group_->await_handle({}, operation);
  library().group_start();
  enqueue([&worst](NcclStatus status) {
    if (status.state == NcclStatus::State::failed) worst = std::move(status);
  });
  const NcclStatus end = library().group_end();
  group_->settle(worst.state == NcclStatus::State::failed ? worst : end, operation);
}

void NcclCommunicator::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  HETEROPERF_EXPECT(mine.count == result.count && mine.type == result.type);
  if (mine.count == 0) return;
  const std::string operation = describe("all_reduce", mine);
  group_->await_handle({}, operation);
  group_->settle(library().all_reduce(mine, result.data, reduction, handle()), operation);
}

void NcclCommunicator::reduce(ConstBuffer mine, MutableBuffer result, RankId root,
                              Reduction reduction) {
  if (mine.count == 0) return;
  const std::string operation = describe("reduce", mine);
  group_->await_handle({}, operation);
  void* out = rank_ == root ? result.data : nullptr;
  group_->settle(library().reduce(mine, out, reduction, peer(root), handle()), operation);
}

void NcclCommunicator::broadcast(MutableBuffer values, RankId root) {
  if (values.count == 0) return;
  const std::string operation = describe("broadcast", values);
  group_->await_handle({}, operation);
  group_->settle(library().broadcast(values, peer(root), handle()), operation);
}

void NcclCommunicator::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(size()));
  const auto self = static_cast<std::size_t>(rank_.value());
  HETEROPERF_EXPECT(mine.count == counts[self] && mine.type == all.type);
  const std::string operation = describe("all_gather", mine);
  if (all_equal(counts)) {
    if (mine.count == 0) return;
    group_->await_handle({}, operation);
    return group_->settle(library().all_gather(mine, all.data, handle()), operation);
  }
  const std::size_t before =
      std::accumulate(counts.begin(), counts.begin() + rank_.value(), std::size_t{0});
  const MutableBuffer own = all.part(before, mine.count);
  if (own.data != mine.data) library().copy(own.data, mine.data, mine.bytes());
  // NCCL has no unequal form: every block is a broadcast of its own, all in one group.
  grouped(operation, [&](auto note) {
    std::size_t begin = 0;
    for (std::size_t r = 0; r < counts.size(); begin += counts[r++]) {
      if (counts[r] == 0) continue;
      note(library().broadcast(all.part(begin, counts[r]), static_cast<int>(r), handle()));
    }
  });
}

void NcclCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                      Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(size()));
  const auto self = static_cast<std::size_t>(rank_.value());
  HETEROPERF_EXPECT(mine.count == counts[self] && mine.type == all.type);
  const std::string operation = describe("reduce_scatter", all);
  if (all_equal(counts)) {
    if (mine.count == 0) return;
    group_->await_handle({}, operation);
    return group_->settle(library().reduce_scatter(all, mine, reduction, handle()), operation);
  }
  grouped(operation, [&](auto note) {
    std::size_t begin = 0;
    for (std::size_t r = 0; r < counts.size(); begin += counts[r++]) {
      if (counts[r] == 0) continue;
      void* out = r == self ? mine.data : nullptr;
      note(library().reduce(all.part(begin, counts[r]), out, reduction, static_cast<int>(r),
                            handle()));
    }
  });
}

void NcclCommunicator::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                                  Counts from_each) {
  const auto ranks = static_cast<std::size_t>(size());
  HETEROPERF_EXPECT(to_each.size() == ranks && from_each.size() == ranks);
  grouped(describe("all_to_all", mine), [&](auto note) {
    std::size_t out = 0, in = 0;
    for (std::size_t r = 0; r < ranks; out += to_each[r], in += from_each[r], ++r) {
      const int other = static_cast<int>(r);
      if (to_each[r] > 0) note(library().send(mine.part(out, to_each[r]), other, handle()));
      if (from_each[r] > 0) note(library().receive(theirs.part(in, from_each[r]), other, handle()));
    }
  });
}

std::unique_ptr<Transfer> NcclCommunicator::start_send(ConstBuffer values, RankId to, int) {
  const int other = peer(to);
  if (values.count > 0) {
    group_->queue([group = group_.get(), values, other] {
      return group->library().send(values, other, group->handle());
    });
  }
  return std::make_unique<NcclTransfer>(group_, describe("send", values));
}

std::unique_ptr<Transfer> NcclCommunicator::start_receive(MutableBuffer values, RankId from, int) {
  const int other = peer(from);
  if (values.count > 0) {
    group_->queue([group = group_.get(), values, other] {
      return group->library().receive(values, other, group->handle());
    });
  }
  return std::make_unique<NcclTransfer>(group_, describe("receive", values));
}

void NcclCommunicator::exchange(std::span<const Outgoing> sends,
                                std::span<const Incoming> receives) {
  for (const Incoming& one : receives) start_receive(one.values, one.from, one.tag);
  for (const Outgoing& one : sends) start_send(one.values, one.to, one.tag);
  group_->flush("exchange");
}

void NcclCommunicator::barrier() {
  const MutableBuffer word(word_.data(), 1, DataType::i32);
  group_->await_handle({}, "barrier");
  group_->settle(library().all_reduce(word, word.data, Reduction::max, handle()), "barrier");
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::int32_t wish[] = {colour, key};
  std::vector<std::int32_t> wishes(2 * ranks);
  MemoryBlock mine(memory(), sizeof wish), all(memory(), wishes.size() * sizeof(std::int32_t));
  memory().write(mine.data(), wish, sizeof wish);
  all_gather(ConstBuffer(mine.data(), 2, DataType::i32),
             MutableBuffer(all.data(), wishes.size(), DataType::i32));
  memory().read(wishes.data(), all.data(), wishes.size() * sizeof(std::int32_t));
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (wishes[2 * r] == colour) order.push_back(r);
  }
  // NCCL takes colours from 0 on; the first rank of a colour stands for it.
  const int index = static_cast<int>(order.front());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return wishes[2 * a + 1] < wishes[2 * b + 1];
  });
  std::vector<RankId> members;
  for (const std::size_t r : order) members.push_back(group_->members()[r]);
  const auto self = static_cast<std::size_t>(rank_.value());
  const auto position = std::find(order.begin(), order.end(), self) - order.begin();
  auto part =
      std::make_shared<NcclGroup>(group_->shared_library(), std::move(members), group_->watch());
  group_->await_handle(library().split(handle(), index, static_cast<int>(position), part->handle()),
                       "split");
  part->await_handle({NcclStatus::State::in_progress, {}}, "split");
  return std::make_unique<NcclCommunicator>(std::move(part),
                                            RankId(static_cast<std::int32_t>(position)));
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::shared_ptr<NcclLibrary> library,
                                                     const NcclId& id, RankId rank,
                                                     std::vector<RankId> members,
                                                     std::shared_ptr<PeerWatch> watch) {
  const int ranks = static_cast<int>(members.size());
  auto group = std::make_shared<NcclGroup>(library, std::move(members), std::move(watch));
  const NcclStatus first = library->init(id, ranks, rank.value(), group->handle());
  group->await_handle(first, "joining the group");
  return std::make_unique<NcclCommunicator>(std::move(group), rank);
}

}  // namespace heteroperf
