// Samples come from a data source one by one and become the tensors of one micro-batch. Several
// threads fill different rows. The order of the training samples is a pure function (StepSamples),
// so every rank finds its own samples without asking another one, and a training that is resumed
// goes on with the right one.
#include "runners/engine/pipeline/batch_loader.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <utility>

#include "runners/engine/operators/tensor_buffer.hpp"

namespace heteroperf {
namespace {

/// The elements of `rows` rows; nothing of a tensor that the data do not have.
template <class T>
std::span<T> rows_of(const at::Tensor& batch, std::int64_t first, std::int64_t rows = 1) {
  if (!batch.defined() || rows == 0) return {};
  const std::int64_t width = batch.numel() / batch.size(0);
  return {batch.mutable_data_ptr<T>() + first * width, static_cast<std::size_t>(rows * width)};
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
  if (part.whole() || part.order == SequenceOrder::patches) return *this;
  Batch result = *this;
  for (at::Tensor* rows : {&result.tokens, &result.targets}) {
    if (!rows->defined() || rows->dim() < 2) continue;
    *rows = positions_of_part(*rows, 1, part, rows->size(1) / part.parts);
  }
  if (counted_targets) result.counted_targets = count_targets(result.targets);
  return result;
}

BatchLoader::BatchLoader(std::shared_ptr<const DataSource> data, at::ScalarType type)
    : data_(std::move(data)), type_(type) {}

Batch BatchLoader::train(const StepSamples& step, std::uint64_t first, std::int64_t count) const {
  return read(Split::train, count,
              [&](std::int64_t i) { return step[first + static_cast<std::uint64_t>(i)]; });
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
  std::vector<std::uint64_t> samples;
  std::vector<std::int64_t> first_image{0};
  for (std::int64_t i = 0; i < count; ++i) {
    samples.push_back(index_of(i));
    first_image.push_back(first_image.back() + data_->images(split, samples.back()));
  }
  if (spec.has_image()) {
    batch.images = make({first_image.back(), spec.channels, spec.height, spec.width}, at::kFloat);
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
      data_->read(
          split, samples[i],
          {rows_of<float>(batch.images, first_image[i], first_image[i + 1] - first_image[i]),
           rows_of<std::int64_t>(batch.tokens, i), rows_of<std::int64_t>(indices, i),
           rows_of<float>(values, i)});
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
