#include "runners/engine/operators/tensor_buffer.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/host_copies.hpp"

namespace heteroperf {

DataType data_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DataType::f32;
    case at::kDouble:
      return DataType::f64;
    case at::kBFloat16:
      return DataType::bf16;
    case at::kHalf:
      return DataType::f16;
    case at::kInt:
      return DataType::i32;
    case at::kLong:
      return DataType::i64;
    case at::kByte:
      return DataType::u8;
    default:
      throw UserError(fmt::format("no communicator carries tensors of {}", c10::toString(type)));
  }
}

MutableBuffer buffer_of(const at::Tensor& tensor) {
  HETEROPERF_EXPECT(tensor.is_non_overlapping_and_dense());
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
          data_type(tensor.scalar_type())};
}

void all_reduce(Communicator& group, const at::Tensor& tensor, Reduction reduction) {
  HostCopies copies(group);
  group.all_reduce(buffer_of(copies.of(tensor)), reduction);
  copies.put_back();
}

}  // namespace heteroperf
