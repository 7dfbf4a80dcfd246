#pragma once

#include <cstdint>
#include <vector>

#include "workloads/model_graph.hpp"

namespace heteroperf {

enum class ResidualBlock { basic, bottleneck };
/// Which convolution of a bottleneck carries the stride: the 3x3 ("v1.5") or the first 1x1 (the
/// paper's "v1"). A basic block has it in its first convolution either way.
enum class StridePlace { conv3x3, first_conv1x1 };

/// Residual networks (He et al., arXiv 1512.03385). The stem is a 7x7 convolution of stride 2 and a
/// 3x3 max-pool of stride 2 at every image size.
struct ResnetShape {
  std::int64_t channels = 3, height = 224, width = 224;
  std::int64_t classes = 1000;
  ResidualBlock block = ResidualBlock::bottleneck;
  StridePlace stride_place = StridePlace::conv3x3;
  std::int64_t stem_width = 64;
  /// Blocks per stage; stage s works at stem_width · 2^s channels, times 4 after a bottleneck.
  std::vector<std::int64_t> stages{3, 4, 6, 3};
  double dropout = 0.0;  ///< before the classifier
};

/// Throws UserError when the shape does not fit (an empty stage, an image too small).
ModelGraph resnet(const ResnetShape& shape);

}  // namespace heteroperf
