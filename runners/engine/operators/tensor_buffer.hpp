#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "workloads/graph/sequence_part.hpp"

namespace heteroperf {

/// Throws UserError for a type that communicators cannot carry.
DataType data_type(at::ScalarType type);

/// A dense tensor's elements in the order of memory, as communicators take them. Throws UserError
/// for a type they cannot carry.
/// The buffer shares the tensor's memory, which must outlive it.
MutableBuffer buffer_of(const at::Tensor& tensor);

/// The tensor itself where it is on the host, else a copy in page-locked memory. Waits for the
/// device.
at::Tensor on_host(const at::Tensor& tensor);

/// Makes tensors readable and writable for ordinary code or for a group's calls: the tensors
/// themselves where these can be used, else copies on the host of tensors on a device. May be used
/// from any thread.
class HostCopies {
 public:
  HostCopies() = default;
  /// For calls of `group`, which may be those of a library of devices.
  explicit HostCopies(Communicator& group) : on_device_(!group.memory().on_host()) {}

  /// Dense, in the order of the tensor's memory. Waits for the device.
  at::Tensor of(const at::Tensor& tensor);
  /// Copies the copies back to the tensors that they came from.
  void put_back();

 private:
  bool on_device_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  ///< original, copy
};

/// Reduces a tensor in place. A device's tensor is waited for and goes through the host's memory
/// unless the group's buffers are on the device.
void all_reduce(Communicator& group, const at::Tensor& tensor, Reduction reduction);

/// The positions of a part of every sequence, one chunk behind the other, from a tensor that has
/// all positions along `dim` of which the part has `own`.
at::Tensor positions_of_part(const at::Tensor& whole, std::int64_t dim, const SequencePart& part,
                             std::int64_t own);

/// {B, T, …} of all positions from the parts {B, T / ranks, …} that a group's ranks have in this
/// order. Collective.
at::Tensor whole_sequences(Communicator& group, const at::Tensor& part, SequenceOrder order);

}  // namespace heteroperf
