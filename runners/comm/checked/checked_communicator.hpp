#pragma once

#include <memory>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

struct CheckConfig {
  bool agreement = true;  ///< operation, type, counts, reduction and root before every collective
  bool payload = false;   ///< a checksum beside every message and every result
};

/// Makes a communicator that finds errors which would otherwise hang or pass unseen: ranks that
/// disagree about a collective (all of them named, Error{run_failed}) and payloads that changed on
/// their way (sender, receiver and operation named). Every call is slower; results are the same.
/// Throws UserError when the buffers of `group` are not in host memory.
std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> group,
                                                        const CheckConfig& config);

std::unique_ptr<Transfer> start_checked_send(Communicator& group, const Outgoing& outgoing,
                                             const CheckConfig& config);
/// The transfer's wait throws Error{run_failed} when label and buffer, or label and payload, do not
/// fit.
std::unique_ptr<Transfer> start_checked_receive(Communicator& group, const Incoming& incoming,
                                                const CheckConfig& config);

/// 64 bits that change with every single changed 8-byte word, and with several almost surely
/// (missed with probability 2⁻⁶⁴ for random damage). It guards against accidents, not attackers.
/// Any alignment; the same value on every machine of one byte order.
std::uint64_t checksum(const void* data, std::size_t bytes);
inline std::uint64_t checksum(ConstBuffer values) { return checksum(values.data, values.bytes()); }

}  // namespace heteroperf
