// Samples come from a data source one by one and become the tensors of one micro-batch. Several
// threads fill different rows. The order of the training samples is a pure function of seed and
// position (shuffled_index), so every rank finds its own samples without asking another one, and a
// training that is resumed goes on with the right one.
#include "runners/engine/pipeline/batch_loader.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <utility>

#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// One sample's elements; nothing for a tensor that the data do not have.
template <class T>
std::span<T> row(const at::Tensor& batch, std::int64_t index) {
  if (!batch.defined()) return {};
  const std::int64_t width = batch.numel() / batch.size(0);
  return {batch.mutable_data_ptr<T>() + index * width, static_cast<std::size_t>(width)};
}

at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type));
}

std::int64_t count_targets(const at::Tensor& targets) {
  if (targets.is_floating_point()) {
    return targets.select(-1, 0).isnan().logical_not().sum().item().toLong();
  }
  const std::span all(targets.const_data_ptr<std::int64_t>(), targets.numel());
  return std::ranges::count_if(all, [](std::int64_t t) { return t >= 0; });
}

}  // namespace

Batch Batch::part_of_sequences(const SequencePart& part) const {
  if (part.whole()) return *this;
  Batch result = *this;
  for (at::Tensor* rows : {&result.tokens, &result.targets}) {
    if (!rows->defined() || rows->dim() < 2) continue;
    *rows = positions_of_part(*rows, 1, part, rows->size(1) / part.parts);
  }
  if (counted_targets) result.counted_targets = count_targets(result.targets);
  return result;
}

BatchLoader::BatchLoader(std::shared_ptr<const DataSource> data, at::ScalarType type,
                         std::uint64_t seed)
    : data_(std::move(data)), type_(type), seed_(seed) {}

Batch BatchLoader::train(std::uint64_t position, std::int64_t count) const {
  const std::uint64_t size = data_->size(Split::train);
  return read(Split::train, count, [&](std::int64_t i) {
    return shuffled_index(seed_, size, position + static_cast<std::uint64_t>(i));
  });
}

Batch BatchLoader::validation(std::uint64_t first, std::int64_t count) const {
  return read(Split::validation, count,
              [&](std::int64_t i) { return first + static_cast<std::uint64_t>(i); });
}

// Pixels and values become the executor's type behind the read.
template <class IndexOf>
Batch BatchLoader::read(Split split, std::int64_t count, const IndexOf& index_of) const {
  const SampleSpec& spec = data_->spec();
  Batch batch;
  if (spec.has_image()) {
    batch.images = make({count, spec.channels, spec.height, spec.width}, at::kFloat);
  }
  if (spec.has_text()) batch.tokens = make({count, spec.length}, at::kLong);
  if (spec.is_labelled()) {
    batch.targets = make({count}, at::kLong);
  } else if (spec.targets() > 0) {
    batch.targets = spec.features > 0 ? make({count, spec.length, spec.features}, at::kFloat)
                                      : make({count, spec.length}, at::kLong);
  }
  const at::Tensor none;
  const at::Tensor& values = spec.features > 0 ? batch.targets : none;
  const at::Tensor& indices = spec.features > 0 ? none : batch.targets;
  at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      data_->read(split, index_of(i),
                  {row<float>(batch.images, i), row<std::int64_t>(batch.tokens, i),
                   row<std::int64_t>(indices, i), row<float>(values, i)});
    }
  });
  if (batch.images.defined()) batch.images = batch.images.to(type_);
  if (values.defined()) batch.targets = batch.targets.to(type_);
  if (spec.lacks_targets()) {
    batch.counted_targets = count_targets(batch.targets);
  }
  return batch;
}

}  // namespace heteroperf
