// The bridge from tensors to kernels on plain memory: it picks the table of kernels for the memory
// and type of a tensor, splits rows between threads, and joins sums of blocks in a fixed order.
//
// Sums over rows are the part that needs care: floating-point sums depend on their order, and a run
// must give the same bits with any number of threads. So rows are cut into blocks by the shape
// alone, every block is summed by one thread, and the blocks' sums are joined in their order.
// Gradient buffers may have another type than the sums (bf16 buffers, float32 sums); GradientTarget
// lends a temporary then and rounds once at the end.
#include "runners/engine/operators/kernel_launch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/product.hpp"

namespace heteroperf {

namespace {

/// The terms of a sum over rows, one per block, in the order that the device adds them in.
at::Tensor in_sum_order(const at::Tensor& partials) {
  const auto order = active_device().sum_order(partials.size(0));
  return order ? partials.index_select(0, *order) : partials;
}

}  // namespace

void use_threads(int threads) {
  at::internal::lazy_init_num_threads();
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

// Other types (indices, half precision) have no kernels.
Element element_of(at::ScalarType type) {
  if (type == at::kFloat) return Element::float32;
  if (type == at::kDouble) return Element::float64;
  if (type == at::kBFloat16) return Element::bfloat16;
  throw UserError(fmt::format("no operators for tensors of {}", c10::toString(type)),
                  "they are built for fp32, bf16 and fp64");
}

at::ScalarType accumulation_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(like.device()));
}
at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) {
  return empty(sizes, like, like.scalar_type());
}
at::Tensor empty_accumulators(at::IntArrayRef sizes, const at::Tensor& like) {
  return empty(sizes, like, accumulation_type(like.scalar_type()));
}
at::Tensor uninitialised_like(const at::Tensor& tensor) { return at::empty_like(tensor); }

at::Tensor canonical(const at::Tensor& tensor) {
  return tensor.contiguous(tensor.dim() == 4 ? at::MemoryFormat::ChannelsLast
                                             : at::MemoryFormat::Contiguous);
}
at::Tensor empty_images(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions()
                              .dtype(type)
                              .device(like.device())
                              .memory_format(at::MemoryFormat::ChannelsLast));
}

Matrix::Matrix(std::int64_t row_count, std::int64_t column_count, const at::Tensor& like)
    : rows(row_count),
      columns(column_count),
      on_device(like.is_cuda()),
      element(element_of(like.scalar_type())),
      kernels(&active_device().kernels(element, on_device)) {}

Matrix matrix_of(const at::Tensor& tensor) {
  const std::int64_t columns = tensor.size(-1);
  return {columns == 0 ? 0 : tensor.numel() / columns, columns, tensor};
}
Matrix elements_of(const at::Tensor& tensor) { return {tensor.numel(), 1, tensor}; }
Matrix pixels_of(const at::Tensor& images) {
  return {images.size(0) * images.size(2) * images.size(3), images.size(1), images};
}

// The host's blocks have sixteen rows at least, so that a block is worth a sum of its own.
RowBlocks::RowBlocks(Matrix of) : matrix(of) {
  constexpr std::int64_t most_blocks = 32, least_rows = 16;
  rows_per_block = of.on_device ? device_rows_per_block(of.rows, of.columns)
                                : std::max(least_rows, (of.rows + most_blocks - 1) / most_blocks);
  count = (of.rows + rows_per_block - 1) / rows_per_block;
}

ColumnPartials::ColumnPartials(const RowBlocks& blocks, const at::Tensor& like)
    : blocks_(blocks.count),
      columns_(blocks.matrix.columns),
      values_(empty_accumulators({blocks_, columns_}, like)) {}

void* block_of(const at::Tensor& values, std::int64_t block) {
  const std::size_t offset =
      static_cast<std::size_t>(block * values.size(1)) * values.element_size();
  return static_cast<char*>(values.data_ptr()) + offset;
}

// On the host threads share the columns, so that each sum is made by one of them.
void ColumnPartials::combine_into(const at::Tensor& target, Accumulation accumulation) const {
  const at::ScalarType type = accumulation_type(target.scalar_type());
  HETEROPERF_EXPECT(type == values_.scalar_type() && target.numel() == columns_);
  run_columns(&KernelTable::combine, Matrix(blocks_, columns_, target), blocks_,
              in_sum_order(values_), accumulation, target);
}

at::Tensor ColumnPartials::combined() const {
  at::Tensor sums = empty({columns_}, values_);
  combine_into(sums, Accumulation::overwrite);
  return sums;
}

GradientTarget::GradientTarget(const at::Tensor& buffer, at::ScalarType type,
                               Accumulation accumulation)
    : buffer_(buffer), wanted_(accumulation), accumulation_(accumulation) {
  if (buffer.scalar_type() == type && buffer.is_contiguous()) {
    values_ = buffer;
    return;
  }
  values_ = empty(buffer.sizes(), buffer, type);
  accumulation_ = Accumulation::overwrite;
}

/// Rounds the temporary into the buffer, once; nothing where kernels wrote straight into it.
void GradientTarget::finish() {
  if (!values_.is_same(buffer_)) accumulate(buffer_, values_, wanted_);
}

void accumulate(const at::Tensor& buffer, const at::Tensor& gradient, Accumulation accumulation) {
  accumulation == Accumulation::add ? buffer.add_(gradient) : buffer.copy_(gradient);
}

void sum_columns_into(const at::Tensor& rows, Matrix matrix, const at::Tensor& gradient,
                      Accumulation accumulation) {
  const RowBlocks blocks(matrix);
  const ColumnPartials sums(blocks, rows);
  blocks.run(&KernelTable::column_sum, rows, &sums);
  sums.combine_into(gradient, accumulation);
}

void multiply_into(const at::Tensor& buffer, const at::Tensor& a, const at::Tensor& b,
                   Accumulation accumulation) {
  GradientTarget target(buffer, a.scalar_type(), accumulation);
  product_into(target.values(), a, b, target.accumulation());
  target.finish();
}

// The handle that the sink offered must be the only one when it is put back.
void put_product(GradientSink& sink, std::size_t input, const at::Tensor& a, const at::Tensor& b,
                 at::IntArrayRef shape) {
  at::Tensor there = sink.reusable(input);
  if (there.defined() && there.is_contiguous()) {
    at::Tensor flat = there.view({a.size(0), b.size(1)});
    product_into(flat, a, b, Accumulation::add);
    flat.reset();
    sink.replace(input, std::move(there));
    return;
  }
  there.reset();
  sink.put(input, product(a, b).view(shape));
}

// One pass finds the largest index; a negative one is large as an unsigned number.
void check_indices(const at::Tensor& indices, std::int64_t limit, const char* what, NoIndex none) {
  HETEROPERF_EXPECT(indices.scalar_type() == at::kLong && indices.is_contiguous());
  if (indices.is_cuda()) return;
  const auto* values = indices.const_data_ptr<std::int64_t>();
  std::uint64_t largest = 0;
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const bool skipped = none == NoIndex::negative && values[i] < 0;
    if (!skipped) largest = std::max(largest, static_cast<std::uint64_t>(values[i]));
  }
  if (largest < static_cast<std::uint64_t>(limit)) return;
  throw UserError(
      fmt::format("{} {} is outside 0..{}", what, static_cast<std::int64_t>(largest), limit - 1),
      "the data and the model disagree on the number of classes",
      "Use data with fewer classes or a model with more.");
}

double counted_targets(const PassContext& context, const at::Tensor& rows) {
  const std::int64_t all = rows.numel() / rows.size(-1);
  return static_cast<double>(std::max<std::int64_t>(1, context.targets.value_or(all)));
}

}  // namespace heteroperf
