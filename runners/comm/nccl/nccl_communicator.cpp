#include "runners/comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <cstdint>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/nccl/nccl_handle.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {
namespace {

class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(std::shared_ptr<NcclHandle> group, std::uint64_t message, std::string operation)
      : group_(std::move(group)), message_(message), operation_(std::move(operation)) {}

  bool test() override { return group_->test(message_, operation_); }
  void wait() override { group_->wait(message_, operation_); }

 private:
  std::shared_ptr<NcclHandle> group_;
  std::uint64_t message_;  ///< 0: one without elements, which is none
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

  std::shared_ptr<NcclHandle> group_;
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
  group_->ready(operation);
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
  group_->ready(operation);
  group_->settle(library().all_reduce(mine, result.data, reduction, handle()), operation);
}

void NcclCommunicator::reduce(ConstBuffer mine, MutableBuffer result, RankId root,
                              Reduction reduction) {
  if (mine.count == 0) return;
  const std::string operation = describe("reduce", mine);
  group_->ready(operation);
  void* out = rank_ == root ? result.data : nullptr;
  group_->settle(library().reduce(mine, out, reduction, peer(root), handle()), operation);
}

void NcclCommunicator::broadcast(MutableBuffer values, RankId root) {
  if (values.count == 0) return;
  const std::string operation = describe("broadcast", values);
  group_->ready(operation);
  group_->settle(library().broadcast(values, peer(root), handle()), operation);
}

void NcclCommunicator::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(size()));
  const auto self = static_cast<std::size_t>(rank_.value());
  HETEROPERF_EXPECT(mine.count == counts[self] && mine.type == all.type);
  const std::string operation = describe("all_gather", mine);
  if (are_equal(counts)) {
    if (mine.count == 0) return;
    group_->ready(operation);
    return group_->settle(library().all_gather(mine, all.data, handle()), operation);
  }
  const MutableBuffer own = part_of(all, block_of(counts, self));
  if (own.data != mine.data) library().copy(own.data, mine.data, mine.bytes());
  // NCCL has no unequal form: every block is a broadcast of its own, all in one group.
  grouped(operation, [&](auto note) {
    for_each_block(counts, [&](std::size_t r, Slice block) {
      if (block.count == 0) return;
      note(library().broadcast(part_of(all, block), static_cast<int>(r), handle()));
    });
  });
}

void NcclCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                      Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == static_cast<std::size_t>(size()));
  const auto self = static_cast<std::size_t>(rank_.value());
  HETEROPERF_EXPECT(mine.count == counts[self] && mine.type == all.type);
  const std::string operation = describe("reduce_scatter", all);
  if (are_equal(counts)) {
    if (mine.count == 0) return;
    group_->ready(operation);
    return group_->settle(library().reduce_scatter(all, mine, reduction, handle()), operation);
  }
  grouped(operation, [&](auto note) {
    for_each_block(counts, [&](std::size_t r, Slice block) {
      if (block.count == 0) return;
      void* out = r == self ? mine.data : nullptr;
      note(library().reduce(part_of(all, block), out, reduction, static_cast<int>(r), handle()));
    });
  });
}

void NcclCommunicator::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                                  Counts from_each) {
  const auto ranks = static_cast<std::size_t>(size());
  HETEROPERF_EXPECT(to_each.size() == ranks && from_each.size() == ranks);
  grouped(describe("all_to_all", mine), [&](auto note) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const Slice out = block_of(to_each, r), in = block_of(from_each, r);
      const int other = static_cast<int>(r);
      if (out.count > 0) note(library().send(part_of(mine, out), other, handle()));
      if (in.count > 0) note(library().receive(part_of(theirs, in), other, handle()));
    }
  });
}

std::unique_ptr<Transfer> NcclCommunicator::start_send(ConstBuffer values, RankId to, int) {
  const int other = peer(to);
  std::uint64_t message = 0;
  if (values.count > 0) {
    message = group_->queue([group = group_.get(), values, other] {
      return group->library().send(values, other, group->handle());
    });
  }
  return std::make_unique<NcclTransfer>(group_, message, describe("send", values));
}

std::unique_ptr<Transfer> NcclCommunicator::start_receive(MutableBuffer values, RankId from, int) {
  const int other = peer(from);
  std::uint64_t message = 0;
  if (values.count > 0) {
    message = group_->queue([group = group_.get(), values, other] {
      return group->library().receive(values, other, group->handle());
    });
  }
  return std::make_unique<NcclTransfer>(group_, message, describe("receive", values));
}

void NcclCommunicator::exchange(std::span<const Outgoing> sends,
                                std::span<const Incoming> receives) {
  for (const Incoming& one : receives) start_receive(one.values, one.from, one.tag);
  for (const Outgoing& one : sends) start_send(one.values, one.to, one.tag);
  group_->wait(group_->last(), "exchange");
}

void NcclCommunicator::barrier() {
  const MutableBuffer word(word_.data(), 1, DataType::i32);
  group_->ready("barrier");
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
      std::make_shared<NcclHandle>(group_->shared_library(), std::move(members), group_->watch());
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
  auto group = std::make_shared<NcclHandle>(library, std::move(members), std::move(watch));
  const NcclStatus first = library->init(id, ranks, rank.value(), group->handle());
  group->await_handle(first, "joining the group");
  return std::make_unique<NcclCommunicator>(std::move(group), rank);
}

}  // namespace heteroperf
