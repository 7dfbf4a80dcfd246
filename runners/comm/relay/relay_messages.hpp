#pragma once

#include <memory>

#include "runners/comm/relay/relay.hpp"

namespace heteroperf {

/// Messages between device buffers by way of both hosts, any number of them under way at once.
///
/// They match by (peer, tag) in the order in which they are started, as the group's own messages
/// do, and waits may come in any order. A message of one chunk, up to 64 KiB, is one message of the
/// group; a longer one is a relay with its own slots, credits and pair of tags
/// (message_tags::relay_channels). Slots are kept and used again.
///
/// Messages make progress whenever one of them is tested or waited for, or progress() is called.
/// Errors are those of Relay; after one of them these messages can only be destroyed.
class RelayMessages {
 public:
  /// `group` and `copier` outlive this object. `config.tag` is not used. Throws UserError with
  /// everything that is wrong with the configuration.
  RelayMessages(Communicator& group, DeviceCopier& copier, const RelayConfig& config);
  ~RelayMessages();
  RelayMessages(const RelayMessages&) = delete;
  RelayMessages& operator=(const RelayMessages&) = delete;

  std::unique_ptr<Transfer> start_send(DeviceBytes values, RankId to, int tag);
  std::unique_ptr<Transfer> start_receive(DeviceBytes values, RankId from, int tag);
  /// Goes as far as it can without waiting; returns true when anything moved.
  bool progress();

 private:
  class Traffic;
  class Arrival;

  std::shared_ptr<Traffic> traffic_;
};

}  // namespace heteroperf
