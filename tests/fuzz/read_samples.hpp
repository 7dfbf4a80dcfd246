#pragma once

#include <vector>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Opens a source as `--data` names it, and reads the first and the last sample of both splits.
inline void read_samples(const DataRequest& request) {
  const auto source = open_data(request);
  const SampleSpec& spec = source->spec();
  std::vector<float> pixels(spec.has_image() ? static_cast<std::size_t>(spec.pixels()) : 0);
  std::vector<std::int64_t> tokens(spec.has_text() ? static_cast<std::size_t>(spec.length) : 0);
  std::vector<std::int64_t> targets(static_cast<std::size_t>(spec.targets()));
  for (const Split split : {Split::train, Split::validation}) {
    if (source->size(split) == 0) continue;
    source->read(split, 0, {pixels, tokens, targets, {}});
    source->read(split, source->size(split) - 1, {pixels, tokens, targets, {}});
  }
}

}  // namespace heteroperf
