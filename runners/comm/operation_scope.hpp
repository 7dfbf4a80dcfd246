#pragma once

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// What a communicator also is that makes up for time lost within an operation (a paced one).
class TimedOperations {
 public:
  virtual ~TimedOperations() = default;
  virtual void begin_operation() = 0;
  virtual void end_operation() = 0;
};

/// The messages of this rank over `group` are one collective of a communicator on top of it, as
/// long as this object lives. Nothing for most groups.
class OperationScope {
 public:
  explicit OperationScope(Communicator& group) : timed_(dynamic_cast<TimedOperations*>(&group)) {
    if (timed_ != nullptr) timed_->begin_operation();
  }
  ~OperationScope() {
    if (timed_ != nullptr) timed_->end_operation();
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  TimedOperations* timed_;
};

}  // namespace heteroperf
