#pragma once

#include <string>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// What a communicator also is whose rank may use several groups at once, each by one thread.
class ConcurrentUse {
 public:
  virtual ~ConcurrentUse() = default;
  /// Why all groups of this rank must be used by one thread after all; empty: they need not.
  virtual std::string one_thread_reason() const = 0;
};

/// Why only one thread of a rank may use this communicator and its splits; empty where several
/// may, each its own group.
std::string one_thread_reason(const Communicator& communicator);

}  // namespace heteroperf
