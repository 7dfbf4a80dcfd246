#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "metrics/base/error.hpp"
#include "runners/comm/buffer.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/relay/staging.hpp"

namespace heteroperf {

struct RelayConfig {
  int slots = 4;  ///< staging slots of each side, at least 3; the receiver's are the credits
  Bytes chunk{256 << 10};  ///< the smaller one of the two sides holds; equal where below 64 KiB
  double timeout_s = 30;   ///< a device copy that takes longer is an error
};

/// Device memory; its address means something to the DeviceCopier alone.
struct DeviceBytes {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
};

/// The bytes of a buffer on a device. A relay that sends them only reads.
inline DeviceBytes device_bytes(ConstBuffer values) {
  return {static_cast<std::byte*>(const_cast<void*>(values.data)), values.bytes()};
}

/// Says that arriving elements are combined with the device's own, on the host, while other chunks
/// travel. Not for averages.
struct RelayAddition {
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
};

/// Messages between device buffers by way of both hosts, any number of them under way at once.
///
/// They match by (peer, tag) in the order in which they are started, as the group's own messages
/// do, and waits may come in any order. A message of one chunk, up to 64 KiB, is one message of the
/// group; a longer one is a relay with its own slots, credits and pair of tags
/// (message_tags::relay_channels); relay.cpp explains how. Slots are kept and used again.
///
/// Messages make progress whenever one of them is tested or waited for, or progress() is called.
/// Both sides use the same number of bytes; a difference is an Error{run_failed}, on both where the
/// message is a relay. A wait for the peer ends as the communicator's do; a copy that does not end
/// is a SystemError{timeout} naming chunk and device. After an error these messages can only be
/// destroyed.
class RelayMessages {
 public:
  /// `group` and `copier` outlive this object.
  RelayMessages(Communicator& group, DeviceCopier& copier, const RelayConfig& config);
  ~RelayMessages();
  RelayMessages(const RelayMessages&) = delete;
  RelayMessages& operator=(const RelayMessages&) = delete;

  std::unique_ptr<Transfer> start_send(DeviceBytes values, RankId to, int tag);
  std::unique_ptr<Transfer> start_receive(DeviceBytes values, RankId from, int tag,
                                          std::optional<RelayAddition> addition = std::nullopt);
  /// Goes as far as it can without waiting; returns true when anything moved.
  bool progress();

 private:
  class Traffic;
  class Arrival;

  std::shared_ptr<Traffic> traffic_;
};

/// Moves one buffer at a time between devices that cannot talk to each other, by way of both hosts'
/// memory. Nothing in the suite calls this class yet: it is here for models of several components,
/// each on devices of its own, that hand tensors to each other. Errors are those of RelayMessages,
/// which it uses; the hybrid communicator runs many such messages at once.
class Relay {
 public:
  Relay(Communicator& group, DeviceCopier& copier, const RelayConfig& config)
      : messages_(group, copier, config) {}

  void send(DeviceBytes values, RankId to) {
    messages_.start_send(values, to, message_tags::relay)->wait();
  }
  void receive(DeviceBytes values, RankId from) {
    messages_.start_receive(values, from, message_tags::relay)->wait();
  }
  /// Combines the values that arrive with this device's.
  void receive_add(DeviceBytes values, DataType type, RankId from,
                   Reduction reduction = Reduction::sum) {
    messages_.start_receive(values, from, message_tags::relay, RelayAddition{type, reduction})
        ->wait();
  }
  /// Sends and receives at once, as in a step around a ring.
  void exchange(DeviceBytes out, RankId to, DeviceBytes in, RankId from) {
    const auto receiving = messages_.start_receive(in, from, message_tags::relay);
    messages_.start_send(out, to, message_tags::relay)->wait();
    receiving->wait();
  }

 private:
  RelayMessages messages_;
};

}  // namespace heteroperf
