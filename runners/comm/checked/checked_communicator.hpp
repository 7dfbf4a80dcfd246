#pragma once

#include <memory>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

struct CheckConfig {
  bool agreement = true;  ///< operation, type, counts, reduction and root before every collective
  bool payload = false;   ///< a checksum beside every message and every result
};

/// Finds what would otherwise hang or pass unseen: ranks that disagree about a collective (all of
/// them named, Error{run_failed}) and payloads that changed on their way (sender, receiver and
/// operation named). Every call is slower; results are the same.
std::unique_ptr<Communicator> make_checked_communicator(std::unique_ptr<Communicator> group,
                                                        const CheckConfig& config);

}  // namespace heteroperf
