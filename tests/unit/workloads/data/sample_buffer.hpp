#pragma once

#include <cstdint>
#include <vector>

#include "metrics/base/hash.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Room for one sample of a source.
struct SampleBuffer {
  explicit SampleBuffer(const SampleSpec& spec) {
    if (spec.has_image()) pixels.resize(static_cast<std::size_t>(spec.pixels()));
    if (spec.has_text()) tokens.resize(static_cast<std::size_t>(spec.length));
    targets.resize(static_cast<std::size_t>(spec.targets()));
  }

  const SampleBuffer& read(const DataSource& source, Split split, std::uint64_t index) {
    source.read(split, index, {pixels, tokens, targets, {}});
    return *this;
  }

  /// Over the input alone: a flipped label must not hide a repeated image.
  std::string input_hash() const {
    return Hash128()
        .update(std::as_bytes(std::span(pixels)))
        .update(std::as_bytes(std::span(tokens)))
        .hex();
  }

  std::vector<float> pixels;
  std::vector<std::int64_t> tokens, targets;
};

}  // namespace heteroperf
