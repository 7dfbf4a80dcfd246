#pragma once

#include "runners/comm/relay/relay_task.hpp"

namespace heteroperf {

/// Whole buffers of a device on their way through this host. Kept from call to call.
class HostStage {
 public:
  /// `copier` outlives this.
  HostStage(DeviceCopier& copier, double timeout_s) : copier_(copier, timeout_s), device_(copier) {}

  /// A copy on the host of values on the device. Waits for it; throws SystemError.
  MutableBuffer read(ConstBuffer values);
  /// Room on the host for as many values.
  MutableBuffer room(ConstBuffer like);
  /// To the device. Waits.
  void write(ConstBuffer host, MutableBuffer values);

 private:
  void await(const WatchedCopier::Copy& copy, const char* what);

  WatchedCopier copier_;
  DeviceCopier& device_;
  SlotMemory in_, out_;
};

}  // namespace heteroperf
