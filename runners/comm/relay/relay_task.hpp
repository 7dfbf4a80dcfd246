#pragma once

#include <memory>
#include <optional>

#include "runners/comm/relay/relay.hpp"

namespace heteroperf {

/// One side of a message between devices. It goes as far as it can without waiting.
class RelayTask {
 public:
  virtual ~RelayTask() = default;
  /// Returns true when anything moved. Throws as Relay does.
  virtual bool progress() = 0;
  virtual bool finished() const = 0;
  /// Returns true when the task's first message is under way, so that the first message of a later
  /// task cannot be taken for it.
  virtual bool announced() const { return true; }
};

/// One side of a relay in chunks.
class RelayEnd : public RelayTask {
 public:
  /// Valid after the end.
  virtual RelayStatistics statistics() const = 0;
};

/// The tags of a relay. Messages to the peer and from it never share a tag, so that two relays of
/// opposite directions do not mix.
struct RelayTags {
  int terms = 0;   ///< from the sender: its terms
  int data = -1;   ///< chunks; below 0 on a receiver: the sender's terms name data and reply
  int reply = -1;  ///< from the receiver: its terms, then credits

  static RelayTags from(int first) { return {first, first + 1, first + 2}; }
};

/// The things that every task works with; all references outlive the task.
struct RelayPlace {
  Communicator& group;
  DeviceCopier& copier;
  const RelayConfig& config;
  RelayTags tags;
};

/// Says that arriving elements are combined with the device's own.
struct RelayAddition {
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
};

/// The bytes of a chunk that this side proposes for a message.
std::size_t proposed_chunk(const RelayConfig& config, std::size_t bytes);

std::unique_ptr<RelayEnd> make_relay_sender(const RelayPlace& place, DeviceBytes values, RankId to,
                                            SlotMemory& slots);
/// `local_slots` hold this device's values while arriving ones are combined with them.
std::unique_ptr<RelayEnd> make_relay_receiver(const RelayPlace& place, DeviceBytes values,
                                              RankId from, SlotMemory& slots,
                                              SlotMemory& local_slots,
                                              std::optional<RelayAddition> addition);

}  // namespace heteroperf
