#include <algorithm>
#include <array>
#include <cstring>

#include "runners/comm/element_types.hpp"
#include "runners/comm/mpi/mpi_collectives.hpp"

// The collectives of ranks on several hosts, made of MPI's non-blocking messages, because only
// these can be waited for with an eye on peers that are gone. Reductions do not use MPI's own, so
// that sums follow the order of ranks and have the same bits as those of the other transports.
//
// A small vector is gathered on all ranks, and each reduces it. A large one is cut into segments,
// each segment into one slice per rank:
//
//     vector   [ segment 0 | segment 1 | … ]
//     segment  [ slice of rank 0 | slice of rank 1 | … ]
//
// In one *exchange* every rank sends each peer that peer's slice and receives its own slice of
// every peer's vector. It then reduces its slice and sends the result to the ranks that want it.
// The exchange of the next segment travels meanwhile, so there are two of everything.

namespace heteroperf {
namespace {

/// Up to this size of all ranks' blocks together they are gathered, and every rank reduces them.
constexpr std::size_t gather_limit_bytes = 65536;
/// The size of a slice, which one rank reduces while the next one is on its way.
constexpr std::size_t max_slice_bytes = 262144;
constexpr std::size_t min_slice_bytes = 8192;
/// The most bytes of all peers' slices together.
constexpr std::size_t slices_bytes = std::size_t{8} << 20;

/// The ranks that want a reduced vector.
enum class Audience { root, everybody };

/// The collectives of one group over MPI messages. Memory for parts grows to the largest use.
class MpiMessageCollectives final : public MpiCollectives {
 public:
  explicit MpiMessageCollectives(const MpiGroup& group) : group_(group) {}

  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    if (input.bytes() * members() <= gather_limit_bytes)
      return reduce_small(input, result, reduction);
    reduce_large({"all_reduce", input}, result, 0, Audience::everybody, reduction);
  }
  void reduce(ConstBuffer input, MutableBuffer result, std::size_t root,
              Reduction reduction) override {
    if (input.bytes() * members() <= gather_limit_bytes) {
      return reduce_at_root(input, result, root, reduction);
    }
    reduce_large({"reduce", input}, result, root, Audience::root, reduction);
  }
  void broadcast(MutableBuffer values, std::size_t root) override {
    const std::size_t limit = group_.max_message_bytes();
    for (std::size_t begin = 0; begin < values.bytes(); begin += limit) {
      const int n = static_cast<int>(std::min(limit, values.bytes() - begin));
      check_mpi(MPI_Ibcast(static_cast<std::byte*>(values.data) + begin, n, MPI_BYTE,
                           static_cast<int>(root), group_.handle(), requests_.add()),
                "MPI_Ibcast");
    }
    group_.wait(requests_, {"broadcast", values});
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    void* block = part_of(all, block_of(counts, self())).data;
    if (block != input.data && input.count > 0) std::memmove(block, input.data, input.bytes());
    if (are_equal(counts) && all.bytes() <= gather_limit_bytes) {
      return group_.gather_blocks(all.data, input.bytes(), {"all_gather", input});
    }
    for (std::size_t step = 1; step < members(); ++step) {
      const std::size_t from = (self() + step) % members();
      const std::size_t to = (self() + members() - step) % members();
      receive(part_of(all, block_of(counts, from)), from, requests_);
      send({block, input.count, input.type}, to, requests_);
    }
    group_.wait(requests_, {"all_gather", input});
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    const std::size_t limit = slice_limit(result.type);
    const std::size_t segments = (largest_of(counts) + limit - 1) / limit;
    const auto start = [&](std::size_t k) {
      start_exchange(exchanges_[k % 2], all,
                     [&](std::size_t r) { return segment_of(block_of(counts, r), k, limit); });
    };
    if (segments > 0) start(0);
    for (std::size_t k = 0; k < segments; ++k) {
      if (k + 1 < segments) start(k + 1);
      Exchange& exchange = exchanges_[k % 2];
      group_.wait(exchange.requests, {"reduce_scatter", all});
      if (k * limit >= result.count) continue;
      void* reduced = result.part(k * limit, 0).data;
      reduce_in_order(exchange.sources, {&reduced, 1}, std::min(limit, result.count - k * limit),
                      result.type, reduction);
    }
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    for (std::size_t step = 0; step < members(); ++step) {
      const std::size_t from = (self() + step) % members();
      const std::size_t to = (self() + members() - step) % members();
      const MutableBuffer incoming = part_of(result, block_of(from_each, from));
      const ConstBuffer outgoing = part_of(input, block_of(to_each, to));
      if (step > 0) {
        receive(incoming, from, requests_);
        send(outgoing, to, requests_);
      } else if (incoming.count > 0) {
        std::memcpy(incoming.data, outgoing.data, incoming.bytes());
      }
    }
    group_.wait(requests_, {"all_to_all", input});
  }
  void barrier() override {
    check_mpi(MPI_Ibarrier(group_.handle(), requests_.add()), "MPI_Ibarrier");
    group_.wait(requests_, {"barrier", {}});
  }
  void agree(const CollectiveCall&) override {}

 private:
  std::size_t members() const { return group_.size(); }
  std::size_t self() const { return group_.self(); }
  std::size_t slice_limit(DataType type) const {
    return std::clamp(slices_bytes / members(), min_slice_bytes, max_slice_bytes) / size_of(type);
  }
  void send(ConstBuffer values, std::size_t to, RequestBatch& requests) const {
    if (values.count > 0) group_.start_send(values, to, MpiGroup::collective_tag, requests);
  }
  void receive(MutableBuffer values, std::size_t from, RequestBatch& requests) const {
    if (values.count > 0) group_.start_receive(values, from, MpiGroup::collective_tag, requests);
  }
  void reduce_small(ConstBuffer input, MutableBuffer result, Reduction reduction) {
    Exchange& exchange = exchanges_[0];
    const std::size_t bytes = input.bytes();
    exchange.parts.resize(std::max(exchange.parts.size(), bytes * members()));
    std::memcpy(exchange.parts.data() + self() * bytes, input.data, bytes);
    group_.gather_blocks(exchange.parts.data(), bytes, {"all_reduce", input});
    exchange.sources.clear();
    for (std::size_t r = 0; r < members(); ++r) {
      exchange.sources.push_back(exchange.parts.data() + r * bytes);
    }
    reduce_in_order(exchange.sources, {&result.data, 1}, input.count, input.type, reduction);
  }
  void reduce_large(const WaitedFor& waited, MutableBuffer result, std::size_t root,
                    Audience audience, Reduction reduction) {
    const ConstBuffer from = waited.values;
    const bool wanted = audience == Audience::everybody || self() == root;
    const std::size_t segment = slice_limit(from.type) * members();
    const std::size_t segments = (from.count + segment - 1) / segment;
    const auto slice = [&](std::size_t k, std::size_t r) {
      const std::size_t begin = k * segment;
      const Slice part = slice_of(std::min(segment, from.count - begin), r, members());
      return Slice{begin + part.begin, part.count};
    };
    const auto start = [&](std::size_t k) {
      start_exchange(exchanges_[k % 2], from, [&](std::size_t r) { return slice(k, r); });
    };
    start(0);
    for (std::size_t k = 0; k < segments; ++k) {
      if (k + 1 < segments) start(k + 1);
      Exchange& exchange = exchanges_[k % 2];
      group_.wait(exchange.requests, waited);
      RequestBatch& results = results_[k % 2];
      group_.wait(results, waited);
      const Slice made = slice(k, self());
      std::vector<std::byte>& unwanted = reduced_[k % 2];
      if (!wanted) unwanted.resize(std::max(unwanted.size(), made.count * size_of(from.type)));
      void* reduced = wanted ? result.part(made.begin, 0).data : unwanted.data();
      reduce_in_order(exchange.sources, {&reduced, 1}, made.count, from.type, reduction);
      const ConstBuffer share(reduced, made.count, from.type);
      for (std::size_t r = 0; r < members(); ++r) {
        if (r == self()) continue;
        if (audience == Audience::everybody || r == root) send(share, r, results);
        if (wanted) receive(part_of(result, slice(k, r)), r, results);
      }
    }
    for (RequestBatch& results : results_) group_.wait(results, waited);
  }
  void reduce_at_root(ConstBuffer input, MutableBuffer result, std::size_t root,
                      Reduction reduction) {
    if (self() != root) {
      send(input, root, requests_);
      group_.wait(requests_, {"reduce", input});
      return;
    }
    start_exchange(exchanges_[0], input, [&](std::size_t r) {
      return r == root ? Slice{0, input.count} : Slice{};
    });
    group_.wait(exchanges_[0].requests, {"reduce", input});
    reduce_in_order(exchanges_[0].sources, {&result.data, 1}, input.count, input.type, reduction);
  }

  /// The peers' parts of this rank's slice, on their way while its parts of their slices go to
  /// them.
  struct Exchange {
    std::vector<std::byte> parts;  ///< one block per peer
    std::vector<const void*> sources;
    RequestBatch requests;
  };
  template <class SliceOf>
  void start_exchange(Exchange& exchange, ConstBuffer from, SliceOf slice_for) {
    const ConstBuffer slice = part_of(from, slice_for(self()));
    exchange.parts.resize(std::max(exchange.parts.size(), slice.bytes() * members()));
    exchange.sources.assign(members(), slice.data);
    for (std::size_t r = 0; r < members(); ++r) {
      if (r == self()) continue;
      std::byte* part = exchange.parts.data() + r * slice.bytes();
      exchange.sources[r] = part;
      receive({part, slice.count, slice.type}, r, exchange.requests);
      send(part_of(from, slice_for(r)), r, exchange.requests);
    }
  }

  const MpiGroup& group_;
  std::array<Exchange, 2> exchanges_;
  std::array<std::vector<std::byte>, 2> reduced_;  ///< used where this rank wants no result
  std::array<RequestBatch, 2> results_;
  RequestBatch requests_;
};

}  // namespace

std::unique_ptr<MpiCollectives> make_message_collectives(const MpiGroup& group) {
  return std::make_unique<MpiMessageCollectives>(group);
}

}  // namespace heteroperf
