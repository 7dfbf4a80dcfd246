// Tensors as the plain memory that communicators take, and copies on the host where they need one.
//
// A group's transport either takes device memory or works on the host's. In the first case a call
// only has to wait for the work that makes the tensor; in the second the tensor is copied to
// page-locked memory, the call works there, and put_back() copies the results to the device.
// HostCopies hides the difference from collectives.
#include "runners/engine/operators/tensor_buffer.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {

DataType data_type(at::ScalarType type) {
  constexpr std::pair<at::ScalarType, DataType> types[] = {
      {at::kFloat, DataType::f32}, {at::kDouble, DataType::f64}, {at::kBFloat16, DataType::bf16},
      {at::kHalf, DataType::f16},  {at::kInt, DataType::i32},    {at::kLong, DataType::i64},
      {at::kByte, DataType::u8}};
  for (const auto& [scalar, carried] : types) {
    if (scalar == type) return carried;
  }
  throw UserError(fmt::format("no communicator carries tensors of {}", c10::toString(type)));
}

// Communicators see memory, not shapes: any dense order of elements will do, as long as all ranks
// have it.
MutableBuffer buffer_of(const at::Tensor& tensor) {
  HETEROPERF_EXPECT(tensor.is_non_overlapping_and_dense());
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
          data_type(tensor.scalar_type())};
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(true);
  return at::empty_like(tensor, options).copy_(tensor);
}

// The work that made the tensor may still be under way on the device.
at::Tensor HostCopies::of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  if (on_device_) {
    device_kernels().wait(tensor.device().index());
    return tensor;
  }
  const c10::InferenceMode no_tape;
  copies_.emplace_back(tensor, on_host(tensor));
  return copies_.back().second;
}

void HostCopies::put_back() {
  const c10::InferenceMode no_tape;
  for (const auto& [original, copy] : copies_) original.copy_(copy);
  copies_.clear();
}

void all_reduce(Communicator& group, const at::Tensor& tensor, Reduction reduction) {
  HostCopies copies(group);
  group.all_reduce(buffer_of(copies.of(tensor)), reduction);
  copies.put_back();
}

at::Tensor positions_of_part(const at::Tensor& whole, std::int64_t dim, const SequencePart& part,
                             std::int64_t own) {
  std::vector<at::Tensor> chunks;
  for (const SequencePart::Chunk& chunk : part.chunks(own)) {
    chunks.push_back(whole.narrow(dim, chunk.first, chunk.count));
  }
  return at::cat(chunks, dim);
}

// In zig-zag order a part of a sequence is two chunks of it: chunk c < n of n ranks is the first
// piece of rank c, the others are the second pieces from the last rank to the first.
at::Tensor whole_sequences(Communicator& group, const at::Tensor& part, SequenceOrder order) {
  const at::Tensor own = part.contiguous();
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor by_rank = at::empty(sizes, own.options());
  HostCopies copies(group);
  const at::Tensor source = copies.of(own), target = copies.of(by_rank);
  group.all_gather(buffer_of(source), buffer_of(target));
  copies.put_back();
  const SequencePart first{0, group.size(), order};
  const std::int64_t size = own.size(1) * group.size() / first.chunk_count();
  std::vector<at::Tensor> chunks;
  for (std::int32_t chunk = 0; chunk < first.chunk_count(); ++chunk) {
    const std::int32_t rank = first.part_of_chunk(chunk);
    chunks.push_back(by_rank.select(0, rank).narrow(1, chunk == rank ? 0 : size, size));
  }
  return at::cat(chunks, 1);
}

}  // namespace heteroperf
