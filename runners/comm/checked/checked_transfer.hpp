#pragma once

#include <cstdint>
#include <memory>

#include "runners/comm/checked/checked_communicator.hpp"

namespace heteroperf {

/// A small message that travels before every payload, with the same tag, and describes it.
struct MessageLabel {
  std::uint64_t count = 0;
  std::int64_t type = 0;
  std::uint64_t payload = 0;  ///< checksum; 0 when payloads are not checked
  std::uint64_t seal = 0;     ///< checksum of the fields above

  MessageLabel() = default;
  MessageLabel(ConstBuffer values, const CheckConfig& config);
  /// False when the label itself was damaged.
  bool sealed() const;
};

std::unique_ptr<Transfer> start_checked_send(Communicator& group, const Outgoing& outgoing,
                                             const CheckConfig& config);
/// The transfer's wait throws Error{run_failed} when label and buffer, or label and payload, do not
/// fit.
std::unique_ptr<Transfer> start_checked_receive(Communicator& group, const Incoming& incoming,
                                                const CheckConfig& config);

}  // namespace heteroperf
