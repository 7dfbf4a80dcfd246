#include "runners/comm/communicator.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "metrics/base/error.hpp"
#include "runners/comm/slice.hpp"

// The defaults that every communicator inherits (a blocking call is a started one that is waited
// for), ordinary memory, the group of one rank, and texts as collectives: their lengths travel
// first, so that every rank can make room.

namespace heteroperf {
namespace {

/// The program exchanges no longer texts, so a greater length comes from another version of it.
constexpr std::int64_t longest_text = 1 << 24;

class HostMemory final : public BufferMemory {
 public:
  bool on_host() const override { return true; }
  void* allocate(std::size_t bytes) override {
    // The pages are touched here, so that a measured call does not pay for their first use.
    void* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(void* memory) noexcept override { ::operator delete(memory, alignment); }
  void write(void* to, const void* host, std::size_t bytes) override { copy(to, host, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override { copy(host, from, bytes); }

 private:
  static constexpr std::align_val_t alignment{64};
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
};

/// The group of one rank. Every collective is a copy at most, and there is nobody to message.
class NullCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  int size() const override { return 1; }
  std::string transport() const override { return "null"; }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction) override {
    copy(input, result);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction) override {
    check_peer(root);
    copy(input, result);
  }
  void broadcast(MutableBuffer, RankId root) override { check_peer(root); }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    HETEROPERF_EXPECT(counts.size() == 1 && counts[0] == input.count);
    copy(input, all);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts, Reduction) override {
    HETEROPERF_EXPECT(counts.size() == 1 && counts[0] == result.count);
    copy(all, result);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    check_exchange(*this, input, to_each, result, from_each);
    copy(input, result);
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

MutableBuffer text_bytes(std::string& text) { return {text.data(), text.size(), DataType::u8}; }

}  // namespace

BufferMemory& host_memory() {
  static HostMemory memory;
  return memory;
}

void Communicator::all_gather(ConstBuffer input, MutableBuffer all) {
  all_gather(input, all, std::vector<std::size_t>(size(), input.count));
}

void Communicator::reduce_scatter(ConstBuffer all, MutableBuffer result, Reduction reduction) {
  reduce_scatter(all, result, std::vector<std::size_t>(size(), result.count), reduction);
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

std::unique_ptr<Communicator> make_null_communicator() {
  return std::make_unique<NullCommunicator>();
}

std::string share_text(Communicator& group, std::string text) {
  auto size = static_cast<std::int64_t>(text.size());
  group.broadcast(std::span(&size, 1), RankId(0));
  text.resize(size);
  group.broadcast(text_bytes(text), RankId(0));
  return text;
}

std::vector<std::string> gather_texts(Communicator& group, const std::string& text) {
  const auto length = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> lengths(group.size());
  group.all_gather(std::span(&length, 1), std::span<std::int64_t>(lengths));
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    if (lengths[r] >= 0 && lengths[r] <= longest_text) continue;
    throw SystemError(fmt::format("rank {} sends a text of {} bytes", r, lengths[r]),
                      fmt::format("at most {}", longest_text),
                      "Start the same version of the program on every host.");
  }
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(total_of(counts), '\0');
  group.all_gather({text.data(), text.size(), DataType::u8}, text_bytes(all), counts);
  std::vector<std::string> texts;
  for_each_block(counts, [&](std::size_t, Slice block) {
    texts.push_back(all.substr(block.begin, block.count));
  });
  return texts;
}

}  // namespace heteroperf
