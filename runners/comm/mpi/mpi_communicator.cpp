#include "runners/comm/mpi/mpi_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runners/comm/element_types.hpp"
#include "runners/comm/mpi/mpi_wait.hpp"

namespace heteroperf {
namespace {

/// Up to here the blocks of all ranks are gathered and every rank reduces them itself.
constexpr std::size_t gather_limit_bytes = 65536;
/// What one rank reduces at a time while the next part is on its way.
constexpr std::size_t max_slice_bytes = 262144;
constexpr std::size_t min_slice_bytes = 8192;
/// All peers' slices together.
constexpr std::size_t slices_bytes = std::size_t{8} << 20;

/// Collectives use odd tags of their own, users' tags become even.
constexpr int collective_tag = 1;
int user_tag(int tag) { return 2 * tag; }

using Requests = std::vector<MPI_Request>;

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }
const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }

/// Elements [begin, end) of one rank's share.
struct Slice {
  std::size_t begin = 0, end = 0;
  std::size_t count() const { return end - begin; }
};

/// Part `index` of `parts` of `count` elements, in steps of 64 elements.
Slice slice_of(std::size_t count, std::size_t index, std::size_t parts) {
  constexpr std::size_t unit = 64;
  const std::size_t units = (count + unit - 1) / unit;
  return {std::min(count, units * index / parts * unit),
          std::min(count, units * (index + 1) / parts * unit)};
}

/// Sums follow the order of ranks, never that of messages: each rank reduces its own slice of the
/// data from the parts of all, so the bits depend on the number of ranks alone.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm handle, std::vector<RankId> members, std::shared_ptr<PeerWatch> watch,
                  std::size_t max_message_bytes)
      : handle_(handle),
        members_(std::move(members)),
        watch_(std::move(watch)),
        max_message_bytes_(max_message_bytes) {
    check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
    int found = 0;
    int* bound = nullptr;
    MPI_Comm_get_attr(handle_, MPI_TAG_UB, static_cast<void*>(&bound), &found);
    if (found != 0) tag_bound_ = *bound;
  }
  ~MpiCommunicator() override;

  RankId rank() const override { return RankId(rank_); }
  int size() const override { return static_cast<int>(members_.size()); }
  std::string transport() const override { return "mpi"; }

  void all_reduce(MutableBuffer values, Reduction reduction) override;
  void broadcast(MutableBuffer values, RankId root) override;
  void all_gather(ConstBuffer mine, MutableBuffer all) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction reduction) override;
  void send(ConstBuffer values, RankId to, int tag) override;
  void receive(MutableBuffer values, RankId from, int tag) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int colour, int key) override;

 private:
  std::size_t members() const { return members_.size(); }
  std::size_t self() const { return static_cast<std::size_t>(rank_); }
  int peer(RankId rank) const;
  int checked_tag(int tag) const;

  void start_send(const void* data, std::size_t bytes, int to, int tag, Requests& requests);
  void start_receive(void* data, std::size_t bytes, int from, int tag, Requests& requests);
  void wait(Requests& requests, const char* operation, ConstBuffer values);
  void gather_small(const void* mine, std::size_t bytes, void* all, const char* operation,
                    ConstBuffer values);
  void reduce_small(MutableBuffer values, Reduction reduction);
  void reduce_large(MutableBuffer values, Reduction reduction);
  std::size_t slice_limit(DataType type) const;

  /// Sends every peer its slice of `from` and receives the peers' parts of this rank's slice.
  struct Exchange {
    std::vector<std::byte> parts;  ///< one block per peer
    std::vector<const void*> sources;
    Requests requests;
  };
  template <class SliceOf>
  void start_exchange(Exchange& exchange, const void* from, DataType type, SliceOf slice_for);

  MPI_Comm handle_;
  std::vector<RankId> members_;
  std::shared_ptr<PeerWatch> watch_;
  std::size_t max_message_bytes_;
  int rank_ = 0;
  int tag_bound_ = 32767;
  std::array<Exchange, 2> exchanges_;
};

MpiCommunicator::~MpiCommunicator() {
  // After a failure a peer may be gone, and freeing may wait for it.
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0 && !watch_->failure_among({})) MPI_Comm_free(&handle_);
}

int MpiCommunicator::peer(RankId rank) const {
  HETEROPERF_EXPECT(rank.value() >= 0 && rank.value() < size());
  return rank.value();
}

int MpiCommunicator::checked_tag(int tag) const {
  HETEROPERF_EXPECT(tag >= 0 && tag <= (tag_bound_ - 1) / 2);
  return user_tag(tag);
}

void MpiCommunicator::start_send(const void* data, std::size_t bytes, int to, int tag,
                                 Requests& requests) {
  std::size_t begin = 0;
  do {
    const std::size_t n = std::min(max_message_bytes_, bytes - begin);
    requests.emplace_back();
    check_mpi(MPI_Isend(bytes_of(data) + begin, static_cast<int>(n), MPI_BYTE, to, tag, handle_,
                        &requests.back()),
              "MPI_Isend");
    begin += n;
  } while (begin < bytes);
}

void MpiCommunicator::start_receive(void* data, std::size_t bytes, int from, int tag,
                                    Requests& requests) {
  std::size_t begin = 0;
  do {
    const std::size_t n = std::min(max_message_bytes_, bytes - begin);
    requests.emplace_back();
    check_mpi(MPI_Irecv(bytes_of(data) + begin, static_cast<int>(n), MPI_BYTE, from, tag, handle_,
                        &requests.back()),
              "MPI_Irecv");
    begin += n;
  } while (begin < bytes);
}

void MpiCommunicator::wait(Requests& requests, const char* operation, ConstBuffer values) {
  wait_for_requests(requests, *watch_, members_, [&] { return describe(operation, values); });
}

void MpiCommunicator::all_reduce(MutableBuffer values, Reduction reduction) {
  if (members() == 1 || values.count == 0) return;
  if (values.bytes() * members() <= gather_limit_bytes) return reduce_small(values, reduction);
  reduce_large(values, reduction);
}

void MpiCommunicator::reduce_small(MutableBuffer values, Reduction reduction) {
  Exchange& exchange = exchanges_[0];
  exchange.parts.resize(values.bytes() * members());
  gather_small(values.data, values.bytes(), exchange.parts.data(), "all_reduce", values);
  exchange.sources.clear();
  for (std::size_t r = 0; r < members(); ++r) {
    exchange.sources.push_back(exchange.parts.data() + r * values.bytes());
  }
  reduce_in_order(exchange.sources, {&values.data, 1}, values.count, values.type, reduction);
}

void MpiCommunicator::reduce_large(MutableBuffer values, Reduction reduction) {
  const std::size_t width = size_of(values.type);
  const std::size_t segment = slice_limit(values.type) * members();
  const std::size_t segments = (values.count + segment - 1) / segment;
  const auto slice = [&](std::size_t k, std::size_t r) {
    const std::size_t begin = k * segment;
    const Slice part = slice_of(std::min(segment, values.count - begin), r, members());
    return Slice{begin + part.begin, begin + part.end};
  };
  const auto start = [&](std::size_t k) {
    start_exchange(exchanges_[k % 2], values.data, values.type,
                   [&](std::size_t r) { return slice(k, r); });
  };
  std::array<Requests, 2> results;
  start(0);
  for (std::size_t k = 0; k < segments; ++k) {
    // The next segment travels while this one is reduced.
    if (k + 1 < segments) start(k + 1);
    Exchange& exchange = exchanges_[k % 2];
    wait(exchange.requests, "all_reduce", values);
    const Slice mine = slice(k, self());
    void* reduced = bytes_of(values.data) + mine.begin * width;
    reduce_in_order(exchange.sources, {&reduced, 1}, mine.count(), values.type, reduction);
    Requests& result = results[k % 2];
    wait(result, "all_reduce", values);
    for (std::size_t r = 0; r < members(); ++r) {
      if (r == self()) continue;
      const Slice theirs = slice(k, r);
      if (mine.count() > 0) {
        start_send(reduced, mine.count() * width, static_cast<int>(r), collective_tag, result);
      }
      if (theirs.count() > 0) {
        start_receive(bytes_of(values.data) + theirs.begin * width, theirs.count() * width,
                      static_cast<int>(r), collective_tag, result);
      }
    }
  }
  for (Requests& result : results) wait(result, "all_reduce", values);
}

template <class SliceOf>
void MpiCommunicator::start_exchange(Exchange& exchange, const void* from, DataType type,
                                     SliceOf slice_for) {
  const std::size_t width = size_of(type);
  const Slice mine = slice_for(self());
  const std::size_t part_bytes = mine.count() * width;
  exchange.parts.resize(std::max(exchange.parts.size(), part_bytes * members()));
  exchange.sources.assign(members(), bytes_of(from) + mine.begin * width);
  for (std::size_t r = 0; r < members(); ++r) {
    if (r == self()) continue;
    const Slice theirs = slice_for(r);
    std::byte* part = exchange.parts.data() + r * part_bytes;
    exchange.sources[r] = part;
    if (part_bytes > 0) {
      start_receive(part, part_bytes, static_cast<int>(r), collective_tag, exchange.requests);
    }
    if (theirs.count() > 0) {
      start_send(bytes_of(from) + theirs.begin * width, theirs.count() * width, static_cast<int>(r),
                 collective_tag, exchange.requests);
    }
  }
}

std::size_t MpiCommunicator::slice_limit(DataType type) const {
  return std::clamp(slices_bytes / members(), min_slice_bytes, max_slice_bytes) / size_of(type);
}

void MpiCommunicator::reduce_scatter(ConstBuffer all, MutableBuffer mine, Reduction reduction) {
  HETEROPERF_EXPECT(all.count == mine.count * members() && all.type == mine.type);
  const std::size_t limit = slice_limit(mine.type);
  const std::size_t segments = (mine.count + limit - 1) / limit;
  const auto start = [&](std::size_t k) {
    start_exchange(exchanges_[k % 2], all.data, all.type, [&](std::size_t r) {
      const std::size_t begin = r * mine.count;
      return Slice{begin + k * limit, begin + std::min(mine.count, (k + 1) * limit)};
    });
  };
  if (segments > 0) start(0);
  for (std::size_t k = 0; k < segments; ++k) {
    if (k + 1 < segments) start(k + 1);
    Exchange& exchange = exchanges_[k % 2];
    wait(exchange.requests, "reduce_scatter", all);
    void* reduced = bytes_of(mine.data) + k * limit * size_of(mine.type);
    reduce_in_order(exchange.sources, {&reduced, 1}, std::min(limit, mine.count - k * limit),
                    mine.type, reduction);
  }
}

void MpiCommunicator::broadcast(MutableBuffer values, RankId root) {
  const int origin = peer(root);
  Requests requests;
  for (std::size_t begin = 0; begin < values.bytes(); begin += max_message_bytes_) {
    const int n = static_cast<int>(std::min(max_message_bytes_, values.bytes() - begin));
    requests.emplace_back();
    check_mpi(
        MPI_Ibcast(bytes_of(values.data) + begin, n, MPI_BYTE, origin, handle_, &requests.back()),
        "MPI_Ibcast");
  }
  wait(requests, "broadcast", values);
}

void MpiCommunicator::all_gather(ConstBuffer mine, MutableBuffer all) {
  HETEROPERF_EXPECT(all.count == mine.count * members() && all.type == mine.type);
  const std::size_t bytes = mine.bytes();
  if (bytes == 0) return;
  std::byte* own = bytes_of(all.data) + self() * bytes;
  if (own != mine.data) std::memmove(own, mine.data, bytes);
  if (all.bytes() <= gather_limit_bytes) {
    return gather_small(own, bytes, all.data, "all_gather", mine);
  }
  Requests requests;
  for (std::size_t step = 1; step < members(); ++step) {
    const std::size_t from = (self() + step) % members();
    const std::size_t to = (self() + members() - step) % members();
    start_receive(bytes_of(all.data) + from * bytes, bytes, static_cast<int>(from), collective_tag,
                  requests);
    start_send(own, bytes, static_cast<int>(to), collective_tag, requests);
  }
  wait(requests, "all_gather", mine);
}

void MpiCommunicator::gather_small(const void* mine, std::size_t bytes, void* all,
                                   const char* operation, ConstBuffer values) {
  const bool in_place = mine == bytes_of(all) + self() * bytes;
  const int n = static_cast<int>(bytes);
  Requests requests(1);
  check_mpi(MPI_Iallgather(in_place ? MPI_IN_PLACE : mine, n, MPI_BYTE, all, n, MPI_BYTE, handle_,
                           requests.data()),
            "MPI_Iallgather");
  wait(requests, operation, values);
}

void MpiCommunicator::send(ConstBuffer values, RankId to, int tag) {
  Requests requests;
  const int receiver = peer(to);
  start_send(values.data, values.bytes(), receiver, checked_tag(tag), requests);
  wait_for_requests(requests, *watch_, {&members_[static_cast<std::size_t>(receiver)], 1},
                    [&] { return describe("send", values); });
}

void MpiCommunicator::receive(MutableBuffer values, RankId from, int tag) {
  Requests requests;
  const int sender = peer(from);
  start_receive(values.data, values.bytes(), sender, checked_tag(tag), requests);
  const std::size_t received =
      wait_for_requests(requests, *watch_, {&members_[static_cast<std::size_t>(sender)], 1},
                        [&] { return describe("receive", values); });
  if (received == values.bytes()) return;
  throw Error(ErrorKind::internal,
              {{fmt::format("rank {} awaits {} bytes with tag {}, rank {} sent {}",
                            members_[self()].value(), values.bytes(), tag,
                            members_[static_cast<std::size_t>(sender)].value(), received),
                "both sides need the same count and type",
                "Please report this with the command that caused it."}});
}

void MpiCommunicator::barrier() {
  Requests requests(1);
  check_mpi(MPI_Ibarrier(handle_, requests.data()), "MPI_Ibarrier");
  wait_for_requests(requests, *watch_, members_, [] { return std::string("barrier"); });
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key) {
  struct Wish {
    int colour, key;
  };
  std::vector<Wish> wishes(members());
  wishes[self()] = {colour, key};
  gather_small(&wishes[self()], sizeof(Wish), wishes.data(), "split",
               ConstBuffer(nullptr, members(), DataType::i64));
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < members(); ++r) {
    if (wishes[r].colour == colour) order.push_back(r);
  }
  // MPI takes colours from 0 on; the first rank of a colour stands for it.
  const int index = static_cast<int>(order.front());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wishes[a].key < wishes[b].key; });
  std::vector<RankId> ranks;
  for (std::size_t r : order) ranks.push_back(members_[r]);

  auto made = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  run_blocking_call(
      [made, index, key, handle = handle_] {
        check_mpi(MPI_Comm_split(handle, index, key, made.get()), "MPI_Comm_split");
      },
      [this] {
        if (const auto failure = watch_->failure_among(members_)) {
          throw PeerError(*failure, "split");
        }
      });
  return make_mpi_communicator(*made, std::move(ranks), watch_, max_message_bytes_);
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm handle, std::vector<RankId> members,
                                                    std::shared_ptr<PeerWatch> watch,
                                                    std::size_t max_message_bytes) {
  return std::make_unique<MpiCommunicator>(handle, std::move(members), std::move(watch),
                                           max_message_bytes);
}

}  // namespace heteroperf
