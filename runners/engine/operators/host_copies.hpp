#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Itself on the host, else a copy in page-locked memory. Waits for the device.
at::Tensor on_host(const at::Tensor& tensor);

/// Tensors as ordinary code or a group's calls read and write them: themselves where these can,
/// copies on the host of what is on a device. From any thread.
class HostCopies {
 public:
  HostCopies() = default;
  /// For calls of `group`, which may be those of a library of devices.
  explicit HostCopies(Communicator& group) : on_device_(!group.memory().on_host()) {}

  /// Dense, in the order of the tensor's memory. Waits for the device.
  at::Tensor of(const at::Tensor& tensor);
  /// What was written to the copies goes to where they came from.
  void put_back();

 private:
  bool on_device_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  ///< original, copy
};

}  // namespace heteroperf
