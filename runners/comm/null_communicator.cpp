#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

/// Every collective of one rank is a copy at most.
class NullCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  int size() const override { return 1; }
  std::string transport() const override { return "null"; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction) override {
    copy(mine, result);
  }
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction) override {
    check_peer(root);
    copy(mine, result);
  }
  void broadcast(MutableBuffer, RankId root) override { check_peer(root); }
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override {
    HETEROPERF_EXPECT(counts.size() == 1 && counts[0] == mine.count);
    copy(mine, all);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts, Reduction) override {
    HETEROPERF_EXPECT(counts.size() == 1 && counts[0] == mine.count);
    copy(all, mine);
  }
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override {
    HETEROPERF_EXPECT(to_each.size() == 1 && to_each[0] == mine.count);
    HETEROPERF_EXPECT(from_each.size() == 1 && from_each[0] == theirs.count);
    copy(mine, theirs);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer, RankId, int) override { refuse("send"); }
  std::unique_ptr<Transfer> start_receive(MutableBuffer, RankId, int) override {
    refuse("receive");
  }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override { return make_null_communicator(); }

 private:
  void check_peer(RankId peer) const { HETEROPERF_EXPECT(peer == rank()); }
  static void copy(ConstBuffer from, MutableBuffer to) {
    HETEROPERF_EXPECT(from.count == to.count && from.type == to.type);
    if (from.bytes() > 0) std::memmove(to.data, from.data, from.bytes());
  }
  [[noreturn]] static void refuse(const std::string& operation) {
    throw Error(ErrorKind::internal,
                {{operation + " in a group of one rank", "there is no peer", ""}});
  }
};

}  // namespace

std::unique_ptr<Communicator> make_null_communicator() {
  return std::make_unique<NullCommunicator>();
}

}  // namespace heteroperf
