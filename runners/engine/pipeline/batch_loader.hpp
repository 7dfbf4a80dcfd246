#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "workloads/data/step_samples.hpp"

namespace heteroperf {

/// The samples of one micro-batch, in the form that the executor takes. What such samples do not
/// have is undefined.
struct Batch {
  at::Tensor images;   ///< {B, C, H, W} of the executor's type; of samples with items all of these
  at::Tensor tokens;   ///< int64 {B, T}
  at::Tensor targets;  ///< int64 {B} or {B, T}; {B, T, F} of the executor's type where values are
  /// The targets that count; absent where all of them do.
  std::optional<std::int64_t> counted_targets;

  const at::Tensor& of(InputKind kind) const { return kind == InputKind::images ? images : tokens; }
  /// The same samples with a part of each sequence.
  Batch part_of_sequences(const SequencePart& part) const;
};

/// Reads batches from a data source. Stateless between calls.
class BatchLoader {
 public:
  BatchLoader(std::shared_ptr<const DataSource> data, at::ScalarType type);

  /// Reads samples first … first + count − 1 of a training step.
  Batch train(const StepSamples& step, std::uint64_t first, std::int64_t count) const;
  /// Reads samples first … first + count − 1 of the validation split.
  Batch validation(std::uint64_t first, std::int64_t count) const;

 private:
  template <class IndexOf>
  Batch read(Split split, std::int64_t count, const IndexOf& index_of) const;

  std::shared_ptr<const DataSource> data_;
  at::ScalarType type_;
};

}  // namespace heteroperf
