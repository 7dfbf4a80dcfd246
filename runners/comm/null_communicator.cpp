#include <cstring>

#include "metrics/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

/// Every collective of one rank is a copy at most.
class NullCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  int size() const override { return 1; }
  std::string transport() const override { return "null"; }

  void all_reduce(MutableBuffer, Reduction) override {}
  void broadcast(MutableBuffer, RankId root) override { HETEROPERF_EXPECT(root == rank()); }
  void all_gather(ConstBuffer mine, MutableBuffer all) override { copy(mine, all); }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction) override { copy(all, mine); }
  void send(ConstBuffer, RankId, int) override { refuse("send"); }
  void receive(MutableBuffer, RankId, int) override { refuse("receive"); }
  void barrier() override {}
  std::unique_ptr<Communicator> split(int, int) override { return make_null_communicator(); }

 private:
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
