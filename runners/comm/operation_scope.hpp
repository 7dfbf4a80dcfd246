#pragma once

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// A second interface of communicators that model time (paced ones). Between begin and end, a rank
/// makes up for the time by which its waits ended late, so that lateness does not add up over the
/// messages of one collective.
class TimedOperations {
 public:
  virtual ~TimedOperations() = default;
  virtual void begin_operation() = 0;
  virtual void end_operation() = 0;
};

/// While this object lives, this rank's messages over `group` belong to one collective of a
/// communicator on top of it. Most groups take no notice.
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
