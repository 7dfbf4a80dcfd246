#include "tests/unit/runners/comm/played_nccl.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <vector>

#include "runners/comm/slice.hpp"

namespace heteroperf {
namespace {

using State = NcclStatus::State;

/// In no address of a program.
constexpr std::uintptr_t mark = std::uintptr_t{1} << 52;

bool is_marked(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & mark) != 0;
}

void* marked(void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) | mark);
}

/// Where the bytes of device memory really are. Null stays null.
void* real(const void* device) {
  if (device == nullptr) return nullptr;
  if (!is_marked(device)) throw std::logic_error("memory of the host where the device's belongs");
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(device) & ~mark);
}
ConstBuffer real(ConstBuffer values) { return {real(values.data), values.count, values.type}; }
MutableBuffer real(MutableBuffer values) { return {real(values.data), values.count, values.type}; }

/// Copies move their bytes when their event is found ended, those before them first.
class PlayedStreams final : public CopyStreams {
 public:
  explicit PlayedStreams(const Script& script) : script_(script) {}

  std::string device() const override { return "played:0"; }
  void* pin(std::size_t bytes) override {
    auto* const memory = new std::byte[bytes];
    pinned_[memory] = bytes;
    return memory;
  }
  void unpin(void* memory) noexcept override {
    pinned_.erase(static_cast<std::byte*>(memory));
    delete[] static_cast<std::byte*>(memory);
  }
  void* make_event() override { return new Event; }
  void destroy_event(void* event) noexcept override {
    for (auto& stream : streams_) std::erase(stream, event);
    delete static_cast<Event*>(event);
  }
  NcclStatus start(Direction direction, void* to, const void* from, std::size_t bytes,
                   void* event) override {
    const bool read = direction == Direction::to_host;
    check_pinned(static_cast<const std::byte*>(read ? to : from), bytes);
    const int number = started_++;
    if (number == script_.failing_copy) return {State::failed, "played copy failure"};
    *static_cast<Event*>(event) = {read ? to : real(to), read ? real(from) : from, bytes,
                                   script_.polls, number == script_.endless_copy};
    streams_[read ? 0 : 1].push_back(event);
    return {};
  }
  NcclStatus status(void* event) override {
    for (auto& stream : streams_) {
      if (std::find(stream.begin(), stream.end(), event) == stream.end()) continue;
      while (true) {
        auto& first = *static_cast<Event*>(stream.front());
        if (first.endless || --first.polls >= 0) return {State::in_progress, {}};
        std::memcpy(first.to, first.from, first.bytes);
        const bool found = stream.front() == event;
        stream.erase(stream.begin());
        if (found) return {};
      }
    }
    return {};
  }

 private:
  struct Event {
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
    int polls = 0;
    bool endless = false;
  };

  void check_pinned(const std::byte* host, std::size_t bytes) const {
    const auto after = pinned_.upper_bound(host);
    const bool inside = after != pinned_.begin() &&
                        host + bytes <= std::prev(after)->first + std::prev(after)->second;
    if (!inside) throw std::logic_error("a copy from or to memory that is not page-locked");
  }

  const Script script_;
  std::map<const std::byte*, std::size_t> pinned_;
  std::vector<void*> streams_[2];
  int started_ = 0;
};

}  // namespace

PlayedMemory::PlayedMemory(const Script& script)
    : copier_(std::make_unique<StreamCopier>(std::make_shared<PlayedStreams>(script))) {}

PlayedMemory::~PlayedMemory() = default;

void* PlayedMemory::allocate(std::size_t bytes) { return marked(host_memory().allocate(bytes)); }

void PlayedMemory::release(void* memory) noexcept { host_memory().release(real(memory)); }

void PlayedMemory::write(void* to, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(real(to), host, bytes);
}

void PlayedMemory::read(void* host, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, real(from), bytes);
}

NcclId PlayedNccl::unique_id() {
  NcclId id{};
  id[0] = static_cast<std::byte>(1 + world_.rank().value());
  return id;
}

NcclStatus PlayedNccl::init(const NcclId& id, int ranks, int rank, void*& handle) {
  auto group = world_.split(static_cast<int>(id[0]), rank);
  EXPECT_EQ(ranks, group->size());
  EXPECT_EQ(rank, group->rank().value());
  handle = keep(std::move(group));
  return late("init");
}

NcclStatus PlayedNccl::split(void* handle, int colour, int key, void*& part) {
  EXPECT_GE(colour, 0);
  part = keep(group(handle).split(colour, key));
  return late("split");
}

NcclStatus PlayedNccl::status(void* handle) {
  EXPECT_EQ(groups_.count(handle), 1U) << "asked of a handle that is gone";
  if (!script_.asynchronous_error.empty()) return {State::failed, script_.asynchronous_error};
  return --pending_ > 0 ? NcclStatus{State::in_progress, {}} : NcclStatus{};
}

void PlayedNccl::abort(void* handle) noexcept {
  ++counts.aborted;
  messages_.clear();
  groups_.erase(handle);
}

NcclStatus PlayedNccl::finalize(void*) {
  ++counts.finalized;
  return late("finalize");
}

void PlayedNccl::destroy(void* handle) noexcept {
  ++counts.destroyed;
  groups_.erase(handle);
}

void PlayedNccl::group_start() {
  ++counts.groups;
  grouping_ = true;
}

NcclStatus PlayedNccl::group_end() {
  grouping_ = false;
  for (const auto& call : calls_) call();
  calls_.clear();
  return late("group_end");
}

NcclStatus PlayedNccl::all_reduce(ConstBuffer in, void* out, Reduction reduction, void* handle) {
  return enqueue("all_reduce", [=, this] {
    group(handle).all_reduce(real(in), {real(out), in.count, in.type}, reduction);
  });
}

NcclStatus PlayedNccl::reduce(ConstBuffer in, void* out, Reduction reduction, int root,
                              void* handle) {
  return enqueue("reduce", [=, this] {
    group(handle).reduce(real(in), {real(out), out == nullptr ? 0 : in.count, in.type},
                         RankId(root), reduction);
  });
}

NcclStatus PlayedNccl::broadcast(MutableBuffer values, int root, void* handle) {
  return enqueue("broadcast", [=, this] { group(handle).broadcast(real(values), RankId(root)); });
}

NcclStatus PlayedNccl::all_gather(ConstBuffer in, void* out, void* handle) {
  return enqueue("all_gather", [=, this] {
    const auto ranks = static_cast<std::size_t>(group(handle).size());
    group(handle).all_gather(real(in), {real(out), in.count * ranks, in.type});
  });
}

NcclStatus PlayedNccl::reduce_scatter(ConstBuffer in, MutableBuffer out, Reduction reduction,
                                      void* handle) {
  return enqueue("reduce_scatter",
                 [=, this] { group(handle).reduce_scatter(real(in), real(out), reduction); });
}

NcclStatus PlayedNccl::send(ConstBuffer values, int to, void* handle) {
  EXPECT_TRUE(grouping_) << "a message outside of a group can block";
  ++counts.messages;
  return enqueue("send", [=, this] {
    messages_.push_back(group(handle).start_send(real(values), RankId(to)));
  });
}

NcclStatus PlayedNccl::receive(MutableBuffer values, int from, void* handle) {
  EXPECT_TRUE(grouping_) << "a message outside of a group can block";
  ++counts.messages;
  return enqueue("receive", [=, this] {
    messages_.push_back(group(handle).start_receive(real(values), RankId(from)));
  });
}

NcclStatus PlayedNccl::stream_status() {
  if (script_.stream_hangs) return {State::in_progress, {}};
  try {
    std::erase_if(messages_, [](const auto& message) { return message->test(); });
  } catch (...) {
    messages_.clear();
    throw;
  }
  if (!messages_.empty()) return {State::in_progress, {}};
  return --pending_ > 0 ? NcclStatus{State::in_progress, {}} : NcclStatus{};
}

void PlayedNccl::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memmove(real(to), real(from), bytes);
}

void* PlayedNccl::keep(std::unique_ptr<Communicator> group) {
  void* handle = group.get();
  groups_[handle] = std::move(group);
  return handle;
}

Communicator& PlayedNccl::group(void* handle) {
  EXPECT_EQ(groups_.count(handle), 1U) << "used a handle that is gone";
  return *groups_.at(handle);
}

NcclStatus PlayedNccl::enqueue(const char* name, std::function<void()> call) {
  if (script_.fails == name) return {State::failed, "played failure"};
  if (grouping_) {
    calls_.push_back(std::move(call));
  } else {
    call();
  }
  return late(name);
}

NcclStatus PlayedNccl::late(const std::string& name) {
  if (script_.fails == name) return {State::failed, "played failure"};
  pending_ = script_.polls;
  return {pending_ > 0 ? State::in_progress : State::done, {}};
}

// ---- callers with buffers on the host

namespace {

/// The device's copy of a buffer of the host.
class Copy {
 public:
  Copy(BufferMemory& memory, const void* host, std::size_t bytes)
      : memory_(memory), block_(memory, bytes), bytes_(bytes) {
    memory.write(block_.data(), host, bytes);
  }
  void* at(std::size_t offset = 0) const { return static_cast<std::byte*>(block_.data()) + offset; }
  void fetch(void* host) const { memory_.read(host, block_.data(), bytes_); }
  /// Nobody may have written to what is only read.
  void expect_unchanged(const void* host) const {
    std::vector<std::byte> now(bytes_);
    fetch(now.data());
    EXPECT_TRUE(bytes_ == 0 || std::memcmp(now.data(), host, bytes_) == 0);
  }

 private:
  BufferMemory& memory_;
  MemoryBlock block_;
  std::size_t bytes_;
};

/// Bytes from the start of `whole` to that of `part`, when it lies inside.
std::optional<std::size_t> offset_in(ConstBuffer whole, ConstBuffer part) {
  const auto* const begin = static_cast<const std::byte*>(whole.data);
  const auto* const at = static_cast<const std::byte*>(part.data);
  if (at == nullptr || std::less<>()(at, begin) ||
      std::less<>()(begin + whole.bytes(), at + part.bytes())) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(at - begin);
}

class CopiedTransfer final : public Transfer {
 public:
  CopiedTransfer(std::unique_ptr<Copy> copy, void* host) : copy_(std::move(copy)), host_(host) {}
  void follow(std::unique_ptr<Transfer> inner) { inner_ = std::move(inner); }
  const Copy& copy() const { return *copy_; }

  bool test() override {
    if (!ended_ && inner_->test()) end();
    return ended_;
  }
  void wait() override {
    if (ended_) return;
    inner_->wait();
    end();
  }

 private:
  void end() {
    ended_ = true;
    if (host_ != nullptr) copy_->fetch(host_);
  }

  std::unique_ptr<Copy> copy_;
  void* host_;
  bool ended_ = false;
  std::unique_ptr<Transfer> inner_;
};

class OnDevice final : public Communicator {
 public:
  explicit OnDevice(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  RankId rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string transport() const override { return inner_->transport(); }

  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    const Copy in = copy(input), out = copy(result);
    const bool in_place = input.data == result.data;
    inner_->all_reduce(on(in_place ? out : in, input), on(out, result), reduction);
    out.fetch(result.data);
    if (!in_place) in.expect_unchanged(input.data);
  }
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override {
    const Copy in = copy(input), out = copy(result);
    const bool in_place = input.data == result.data;
    inner_->reduce(on(in_place ? out : in, input), on(out, result), root, reduction);
    if (rank() == root) out.fetch(result.data);
    if (!in_place) in.expect_unchanged(input.data);
  }
  void broadcast(MutableBuffer values, RankId root) override {
    const Copy both = copy(values);
    inner_->broadcast(on(both, values), root);
    both.fetch(values.data);
  }
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override {
    const Copy in = copy(input), out = copy(all);
    const auto place = offset_in(all, input);
    const ConstBuffer from =
        place ? ConstBuffer(out.at(*place), input.count, input.type) : ConstBuffer(on(in, input));
    inner_->all_gather(from, on(out, all), counts);
    out.fetch(all.data);
  }
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override {
    const Copy in = copy(all), out = copy(result);
    const auto place = offset_in(all, result);
    const MutableBuffer to =
        place ? MutableBuffer(in.at(*place), result.count, result.type) : on(out, result);
    inner_->reduce_scatter(on(in, all), to, counts, reduction);
    if (result.count > 0) inner_->memory().read(result.data, to.data, result.bytes());
    if (!place) in.expect_unchanged(all.data);
  }
  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    const Copy in = copy(input), out = copy(result);
    inner_->all_to_all(on(in, input), to_each, on(out, result), from_each);
    out.fetch(result.data);
    in.expect_unchanged(input.data);
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    auto transfer = std::make_unique<CopiedTransfer>(block(values), nullptr);
    transfer->follow(inner_->start_send(on(transfer->copy(), values), to, tag));
    return transfer;
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    auto transfer = std::make_unique<CopiedTransfer>(block(values), values.data);
    transfer->follow(inner_->start_receive(on(transfer->copy(), values), from, tag));
    return transfer;
  }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    std::vector<Copy> out, in;
    std::vector<Outgoing> inner_sends;
    std::vector<Incoming> inner_receives;
    out.reserve(sends.size());
    in.reserve(receives.size());
    for (const Outgoing& one : sends) {
      out.push_back(copy(one.values));
      inner_sends.push_back({on(out.back(), one.values), one.to, one.tag});
    }
    for (const Incoming& one : receives) {
      in.push_back(copy(one.values));
      inner_receives.push_back({on(in.back(), one.values), one.from, one.tag});
    }
    inner_->exchange(inner_sends, inner_receives);
    for (std::size_t i = 0; i < in.size(); ++i) in[i].fetch(receives[i].values.data);
  }
  void barrier() override { inner_->barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    return std::make_unique<OnDevice>(inner_->split(colour, key));
  }

 private:
  Copy copy(ConstBuffer values) const { return {inner_->memory(), values.data, values.bytes()}; }
  std::unique_ptr<Copy> block(ConstBuffer values) const {
    return std::make_unique<Copy>(inner_->memory(), values.data, values.bytes());
  }
  static MutableBuffer on(const Copy& copy, ConstBuffer values) {
    return {copy.at(), values.count, values.type};
  }

  std::unique_ptr<Communicator> inner_;
};

}  // namespace

std::unique_ptr<Communicator> make_on_device(std::unique_ptr<Communicator> inner) {
  return std::make_unique<OnDevice>(std::move(inner));
}

}  // namespace heteroperf
