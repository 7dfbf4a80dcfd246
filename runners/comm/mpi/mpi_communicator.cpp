#include <fmt/format.h>

#include <cstring>

#include "metrics/base/name_table.hpp"
#include "runners/comm/mpi/mpi_collectives.hpp"

// A communicator over one MPI group. Collectives are checked here and then done in one of two ways,
// which the group chooses when it is made: over messages, or over memory that the ranks of one host
// share. Messages between two ranks always go by MPI.

namespace heteroperf {
namespace {

void copy(ConstBuffer from, MutableBuffer to) {
  if (from.count > 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes());
}

/// MPI checks no sizes but the receiver's limit, so a receive compares the bytes that came with
/// those it awaited.
void check_count(const WaitedFor& waited, RankId self, std::size_t received) {
  if (received == waited.values.bytes()) return;
  throw Error(ErrorKind::run_failed,
              {{fmt::format("rank {} awaits {} bytes in {}, {} came", self.value(),
                            waited.values.bytes(), waited.text(), received),
                "both sides need the same count and type", remedy_of_misfit}});
}

/// The requests of one send or receive.
class MpiTransfer final : public Transfer {
 public:
  enum class Way { send, receive };

  MpiTransfer(const MpiGroup& group, std::size_t peer, Way way, const WaitedFor& waited)
      : watch_(group.watch()),
        self_(group.members()[group.self()]),
        peer_(group.members()[peer]),
        way_(way),
        waited_(waited) {}

  RequestBatch& requests() { return requests_; }

  bool test() override {
    if (requests_.empty()) return true;
    int code = MPI_SUCCESS;
    if (requests_.test(code)) {
      end(requests_.bytes_received());
      requests_.clear();
      return true;
    }
    if (code != MPI_SUCCESS) blame(code, *watch_, {&peer_, 1}, waited_);
    check_peers(*watch_, {&peer_, 1}, waited_);
    return false;
  }

  void wait() override {
    if (requests_.empty()) return;
    end(wait_for_requests(requests_, *watch_, {&peer_, 1}, waited_));
  }

 private:
  void end(std::size_t received) const {
    if (way_ == Way::receive) check_count(waited_, self_, received);
  }

  std::shared_ptr<PeerWatch> watch_;
  RankId self_, peer_;
  Way way_;
  WaitedFor waited_;
  RequestBatch requests_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
                  const MpiSettings& settings)
      : group_(handle, std::move(members), std::move(watch), settings.max_message_bytes),
        settings_(settings) {
    HostChoice choice =
        choose_host_path(group_, settings.host_path, shared_memory_bytes(group_.size()));
    settings_.crowded = choice.crowded = choice.crowded || settings.crowded;
    path_ = fmt::format("{} ({})", to_string(choice.path), choice.reason);
    collectives_ = choice.path == HostPath::messages
                       ? make_message_collectives(group_)
                       : make_shared_collectives(group_, std::move(choice));
  }

  RankId rank() const override { return RankId(group_.self()); }
  int size() const override { return static_cast<int>(group_.size()); }
  std::string transport() const override { return "mpi"; }
  // Collectives of one host call MPI, too, so that messages make progress.
  std::string one_thread_reason() const override {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_MULTIPLE) return {};
    return "this MPI library may be called by one thread at a time (no MPI_THREAD_MULTIPLE)";
  }
  std::string path() const override { return path_; }

  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    HETEROPERF_EXPECT(input.count == result.count && input.type == result.type);
    if (alone()) return copy(input, result);
    if (input.count == 0) {
      return collectives_->agree({all_reduce_terms(input, reduction), {"all_reduce", input}});
    }
    collectives_->all_reduce(input, result, reduction);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    const std::size_t receiver = member(root);
    HETEROPERF_EXPECT(receiver != group_.self() ||
                      (input.count == result.count && input.type == result.type));
    if (alone()) return copy(input, result);
    if (input.count == 0) {
      return collectives_->agree({reduce_terms(input, root, reduction), {"reduce", input}});
    }
    collectives_->reduce(input, result, receiver, reduction);
  }
  void broadcast(MutableBuffer values, RankId root) override {
    const std::size_t origin = member(root);
    if (alone()) return;
    if (values.count == 0) {
      return collectives_->agree({broadcast_terms(values, root), {"broadcast", values}});
    }
    collectives_->broadcast(values, origin);
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    check_blocks(*this, counts, input, all);
    if (alone()) return copy(input, all);
    if (all.count == 0) {
      return collectives_->agree({all_gather_terms(all, counts), {"all_gather", all}});
    }
    collectives_->all_gather(input, all, counts);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    check_blocks(*this, counts, result, all);
    if (alone()) return copy(all, result);
    if (all.count == 0) {
      return collectives_->agree(
          {reduce_scatter_terms(all, counts, reduction), {"reduce_scatter", all}});
    }
    collectives_->reduce_scatter(all, result, counts, reduction);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    check_exchange(*this, input, to_each, result, from_each);
    HETEROPERF_EXPECT(to_each[group_.self()] == from_each[group_.self()]);
    if (alone()) return copy(input, result);
    collectives_->all_to_all(input, to_each, result, from_each);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    const std::size_t receiver = member(to);
    auto transfer = std::make_unique<MpiTransfer>(group_, receiver, MpiTransfer::Way::send,
                                                  WaitedFor{"send", values});
    group_.start_send(values, receiver, mpi_tag(tag), transfer->requests());
    return transfer;
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    const std::size_t sender = member(from);
    auto transfer = std::make_unique<MpiTransfer>(group_, sender, MpiTransfer::Way::receive,
                                                  WaitedFor{"receive", values});
    group_.start_receive(values, sender, mpi_tag(tag), transfer->requests());
    return transfer;
  }
  void send(ConstBuffer values, RankId to, int tag) override {
    const std::size_t receiver = member(to);
    group_.start_send(values, receiver, mpi_tag(tag), requests_);
    wait_for_requests(requests_, *group_.watch(), peer(receiver), {"send", values});
  }
  void receive(MutableBuffer values, RankId from, int tag) override {
    const std::size_t sender = member(from);
    const WaitedFor waited{"receive", values};
    group_.start_receive(values, sender, mpi_tag(tag), requests_);
    check_count(waited, world_rank(),
                wait_for_requests(requests_, *group_.watch(), peer(sender), waited));
  }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    std::size_t expected = 0;
    awaited_.clear();
    for (const Incoming& in : receives) {
      const std::size_t sender = member(in.from);
      expected += in.values.bytes();
      awaited_.push_back(group_.members()[sender]);
      group_.start_receive(in.values, sender, mpi_tag(in.tag), receives_);
    }
    for (const Outgoing& out : sends) {
      const std::size_t receiver = member(out.to);
      awaited_.push_back(group_.members()[receiver]);
      group_.start_send(out.values, receiver, mpi_tag(out.tag), requests_);
    }
    const WaitedFor waited{"exchange", {nullptr, expected, DataType::u8}};
    const std::size_t received = wait_for_requests(receives_, *group_.watch(), awaited_, waited);
    wait_for_requests(requests_, *group_.watch(), awaited_, waited);
    check_count(waited, world_rank(), received);
  }
  void barrier() override {
    if (!alone()) collectives_->barrier();
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    const CollectiveCall call{bare_terms(CollectiveKind::split), {"split", {}}};
    if (!alone()) collectives_->agree(call);
    std::vector<SplitWish> wishes(members());
    wishes[group_.self()] = {colour, key};
    group_.gather_blocks(wishes.data(), sizeof(SplitWish), call.waited);
    const SplitGroup part = split_group(wishes, group_.self());
    auto made = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    run_blocking_call(
        [made, colour = part.colour, key, handle = group_.handle()] {
          check_mpi(MPI_Comm_split(handle, colour, key, made.get()), "MPI_Comm_split");
        },
        [&] { check_peers(*group_.watch(), group_.members(), call.waited); });
    return std::make_unique<MpiCommunicator>(*made, part.members(group_.members()), group_.watch(),
                                             settings_);
  }

 private:
  std::size_t members() const { return group_.size(); }
  bool alone() const { return group_.size() == 1; }
  std::size_t member(RankId rank) const {
    HETEROPERF_EXPECT(rank.index() < members());
    return rank.index();
  }
  RankId world_rank() const { return group_.members()[group_.self()]; }
  /// The rank of the world that the wait for a message depends on.
  std::span<const RankId> peer(std::size_t member) const { return {&group_.members()[member], 1}; }
  /// MPI's even tags belong to users, odd ones to collectives.
  static int mpi_tag(int tag) {
    HETEROPERF_EXPECT(tag >= 0 && tag <= MpiGroup::max_user_tag);
    return 2 * tag;
  }

  MpiGroup group_;
  MpiSettings settings_;
  std::string path_;
  std::unique_ptr<MpiCollectives> collectives_;
  RequestBatch requests_, receives_;
  std::vector<RankId> awaited_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    const MpiSettings& settings) {
  return std::make_unique<MpiCommunicator>(handle, std::move(members), std::move(watch), settings);
}

}  // namespace heteroperf
