#include "runners/comm/mpi/shared_collectives.hpp"

#include "runners/comm/mpi/shared_copies.hpp"
#include "runners/comm/mpi/shared_reductions.hpp"

namespace heteroperf {
namespace {

class SharedCollectives final : public MpiCollectives {
 public:
  SharedCollectives(const MpiGroup& group, HostChoice choice)
      : host_(group, std::move(choice)), reductions_(host_), copies_(host_) {}

  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override {
    reductions_.reduce_to_some({mine,
                                result,
                                reduction,
                                {"all_reduce", mine},
                                all_reduce_terms(mine, reduction),
                                true,
                                0,
                                host_.members()});
  }
  void reduce(ConstBuffer mine, MutableBuffer result, std::size_t root,
              Reduction reduction) override {
    reductions_.reduce_to_some(
        {mine,
         result,
         reduction,
         {"reduce", mine},
         reduce_terms(mine, RankId(static_cast<std::int32_t>(root)), reduction),
         host_.self() == root,
         root,
         root + 1});
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override {
    reductions_.reduce_scatter(all, mine, counts, reduction);
  }
  void broadcast(MutableBuffer values, std::size_t root) override {
    copies_.broadcast(values, root);
  }
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override {
    copies_.all_gather(mine, all, counts);
  }
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override {
    copies_.all_to_all(mine, to_each, theirs, from_each);
  }
  void barrier() override { agree(barrier_terms(), {"barrier", {}}); }
  void agree(const CollectiveTerms& terms, const WaitedFor& waited) override {
    host_.meeting.meet(terms, waited);
  }

 private:
  SharedHost host_;
  SharedReductions reductions_;
  SharedCopies copies_;
};

}  // namespace

std::size_t shared_memory_bytes(std::size_t ranks) { return HostRoom(ranks).bytes(); }

std::unique_ptr<MpiCollectives> make_shared_collectives(const MpiGroup& group, HostChoice choice) {
  return std::make_unique<SharedCollectives>(group, std::move(choice));
}

}  // namespace heteroperf
