#include "runners/comm/checked/checked_communicator.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "runners/comm/collective_terms.hpp"
#include "runners/comm/element_types.hpp"

// A checked message is two messages of the group below, with the same tag: a label of fixed size,
// then the payload. The receiver knows from the label whether count and type fit before it trusts
// the payload, and whether the payload came undamaged. The label has a seal of its own, so that a
// damaged label is not taken for a wrong call.

namespace heteroperf {
namespace {

/// Four independent chains hide the latency of the multiplication.
constexpr std::size_t checksum_lanes = 4;
constexpr std::uint64_t odd_factor = 0x9e3779b97f4a7c15ULL;  // 2⁶⁴ / golden ratio

/// Bijective in `word` for a given state, and in the state for a given word, so that no single
/// changed word goes unseen.
std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * odd_factor, 29);
}

/// A small message that travels before every payload, with the same tag, and describes it.
struct MessageLabel {
  std::uint64_t count = 0;
  std::int64_t type = 0;
  std::uint64_t payload = 0;  ///< checksum; 0 when payloads are not checked
  std::uint64_t seal = 0;     ///< checksum of the fields above

  MessageLabel() = default;
  MessageLabel(ConstBuffer values, const CheckConfig& config)
      : count(values.count),
        type(static_cast<std::int64_t>(values.type)),
        payload(config.payload ? checksum(values) : 0),
        seal(checksum(this, offsetof(MessageLabel, seal))) {}
  /// False when the label itself was damaged.
  bool sealed() const { return seal == checksum(this, offsetof(MessageLabel, seal)); }
};

ConstBuffer label_bytes(const MessageLabel& label) { return {&label, sizeof label, DataType::u8}; }
MutableBuffer label_bytes(MessageLabel& label) { return {&label, sizeof label, DataType::u8}; }

class CheckedSend final : public Transfer {
 public:
  CheckedSend(Communicator& group, const Outgoing& out, const CheckConfig& config)
      : label_(out.values, config),
        label_sent_(group.start_send(label_bytes(std::as_const(label_)), out.to, out.tag)),
        payload_sent_(group.start_send(out.values, out.to, out.tag)) {}

  bool test() override { return label_sent_->test() && payload_sent_->test(); }
  void wait() override {
    label_sent_->wait();
    payload_sent_->wait();
  }

 private:
  MessageLabel label_;
  std::unique_ptr<Transfer> label_sent_, payload_sent_;
};

/// Both parts of the message are received from the start, so that no progress depends on a wait.
class CheckedReceive final : public Transfer {
 public:
  CheckedReceive(Communicator& group, const Incoming& in, const CheckConfig& config)
      : incoming_(in),
        self_(group.rank()),
        checks_payload_(config.payload),
        label_came_(group.start_receive(label_bytes(label_), in.from, in.tag)),
        payload_came_(group.start_receive(in.values, in.from, in.tag)) {}

  bool test() override {
    if (checked_) return true;
    if (!label_came_->test()) return false;
    check_label();
    if (!payload_came_->test()) return false;
    check_payload();
    return true;
  }
  void wait() override {
    if (checked_) return;
    label_came_->wait();
    check_label();
    payload_came_->wait();
    check_payload();
  }

 private:
  void check_label() const {
    if (!label_.sealed()) {
      fail(awaited() +
               fmt::format(", and the {} bytes that announce it came damaged", sizeof label_),
           "their checksum does not fit");
    }
    const auto type = static_cast<DataType>(label_.type);
    if (label_.count == incoming_.values.count && type == incoming_.values.type) return;
    fail(fmt::format("{}, which sent {} {}", awaited(), label_.count, to_string(type)),
         "both sides need the same count and type", remedy_of_misfit);
  }
  void check_payload() {
    checked_ = !checks_payload_ || checksum(incoming_.values) == label_.payload;
    if (checked_) return;
    fail(fmt::format("a message changed on its way: send/receive of {} {} ({} bytes) with tag {}, "
                     "from rank {} to rank {}",
                     incoming_.values.count, to_string(incoming_.values.type),
                     ConstBuffer(incoming_.values).bytes(), incoming_.tag, incoming_.from.value(),
                     self_.value()),
         "its checksum does not fit");
  }
  [[noreturn]] void fail(const std::string& problem, const char* why,
                         const char* suggestion = "") const {
    throw Error(ErrorKind::run_failed, {{problem, why, suggestion}});
  }
  std::string awaited() const {
    return fmt::format("rank {} awaits {} {} with tag {} from rank {}", self_.value(),
                       incoming_.values.count, to_string(incoming_.values.type), incoming_.tag,
                       incoming_.from.value());
  }

  Incoming incoming_;
  RankId self_;
  bool checks_payload_;
  bool checked_ = false;
  MessageLabel label_;
  std::unique_ptr<Transfer> label_came_, payload_came_;
};

}  // namespace

std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t state[checksum_lanes] = {1, 2, 3, 4}, block[checksum_lanes];
  std::size_t left = bytes;
  for (; left >= sizeof block; left -= sizeof block, at += sizeof block) {
    std::memcpy(block, at, sizeof block);
    for (std::size_t i = 0; i < checksum_lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  if (left > 0) {
    std::memset(block, 0, sizeof block);
    std::memcpy(block, at, left);
    for (std::size_t i = 0; i < checksum_lanes; ++i) state[i] = absorb(state[i], block[i]);
  }
  std::uint64_t hash = bytes;
  for (std::uint64_t lane : state) hash = mix64(hash ^ lane);
  return hash;
}

std::unique_ptr<Transfer> start_checked_send(Communicator& group, const Outgoing& outgoing,
                                             const CheckConfig& config) {
  return std::make_unique<CheckedSend>(group, outgoing, config);
}

std::unique_ptr<Transfer> start_checked_receive(Communicator& group, const Incoming& incoming,
                                                const CheckConfig& config) {
  return std::make_unique<CheckedReceive>(group, incoming, config);
}

}  // namespace heteroperf
