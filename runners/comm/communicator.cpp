#include "runners/comm/communicator.hpp"

#include <array>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/concurrent_use.hpp"

namespace heteroperf {
namespace {

/// As many blocks of one size as there are ranks; no allocation for groups of an ordinary size.
class EqualCounts {
 public:
  EqualCounts(int ranks, std::size_t count) : ranks_(static_cast<std::size_t>(ranks)) {
    if (ranks_ > few_.size()) many_.assign(ranks_, count);
    few_.fill(count);
  }
  Counts counts() const {
    return ranks_ > few_.size() ? Counts(many_) : Counts(few_).first(ranks_);
  }

 private:
  std::size_t ranks_;
  std::array<std::size_t, 64> few_;
  std::vector<std::size_t> many_;
};

}  // namespace

std::string one_thread_reason(const Communicator& communicator) {
  if (const auto* known = dynamic_cast<const ConcurrentUse*>(&communicator)) {
    return known->one_thread_reason();
  }
  return "the " + communicator.transport() + " transport serves one thread of a rank";
}

void Communicator::all_gather(ConstBuffer mine, MutableBuffer all) {
  all_gather(mine, all, EqualCounts(size(), mine.count).counts());
}

void Communicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction reduction) {
  reduce_scatter(all, mine, EqualCounts(size(), mine.count).counts(), reduction);
}

void Communicator::send(ConstBuffer values, RankId to, int tag) {
  start_send(values, to, tag)->wait();
}

void Communicator::receive(MutableBuffer values, RankId from, int tag) {
  start_receive(values, from, tag)->wait();
}

void Communicator::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  transfers.reserve(sends.size() + receives.size());
  for (const Incoming& in : receives) {
    transfers.push_back(start_receive(in.values, in.from, in.tag));
  }
  for (const Outgoing& out : sends) transfers.push_back(start_send(out.values, out.to, out.tag));
  wait_all(transfers);
}

void wait_all(Transfers transfers) {
  for (const auto& transfer : transfers) transfer->wait();
}

}  // namespace heteroperf
