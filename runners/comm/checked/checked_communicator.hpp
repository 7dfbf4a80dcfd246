#pragma once

#include <memory>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The things that a checked communicator looks at.
enum class Checks {
  agreement,  ///< operation, type, counts, reduction and root before every collective
  payload,    ///< the same, and a checksum beside every message and every result
};

/// Makes a communicator that finds errors which would otherwise hang or pass unseen: ranks that
/// disagree about a collective (all of them named, Error{run_failed}) and payloads that changed on
/// their way (sender, receiver and operation named). Every call is slower; results are the same.
/// Throws UserError when the buffers of `group` are not in host memory.
std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> group,
                                                        Checks checks = Checks::agreement);

/// 64 bits that change with every single changed 8-byte word, and with several almost surely
/// (missed with probability 2⁻⁶⁴ for random damage). It guards against accidents, not attackers.
/// Any alignment; the same value on every machine of one byte order.
std::uint64_t checksum(const void* data, std::size_t bytes);
inline std::uint64_t checksum(ConstBuffer values) { return checksum(values.data, values.bytes()); }

}  // namespace heteroperf
