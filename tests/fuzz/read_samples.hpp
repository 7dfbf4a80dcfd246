#pragma once

#include <vector>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Opens a source as `--data` names it, and reads the first and the last sample of both splits.
inline void read_samples(const DataRequest& request) {
  const auto source = open_data(request);
  const SampleSpec& spec = source->spec();
  const bool images = spec.kind == InputKind::images;
  std::vector<float> pixels(
      images ? static_cast<std::size_t>(spec.channels * spec.height * spec.width) : 0);
  std::vector<std::int64_t> tokens(images ? 0 : static_cast<std::size_t>(spec.length));
  std::vector<std::int64_t> targets(images ? 1 : tokens.size());
  for (const Split split : {Split::train, Split::validation}) {
    if (source->size(split) == 0) continue;
    source->read(split, 0, {pixels, tokens, targets});
    source->read(split, source->size(split) - 1, {pixels, tokens, targets});
  }
}

}  // namespace heteroperf
