#pragma once

#include <cstdint>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

enum class ResidualBlock { basic, bottleneck };
/// The convolution of a bottleneck that carries the stride: the 3x3 ("v1.5") or the first 1x1 (the
/// paper's "v1"). A basic block has it in its first convolution either way.
enum class StridePlace { conv3x3, first_conv1x1 };

/// A residual network (He et al., arXiv 1512.03385). The stem is a 7x7 convolution of stride 2 and
/// a 3x3 max-pool of stride 2 at every image size.
struct ResnetShape {
  Input input{InputKind::images, 3, 224, 224, 0};
  std::int64_t classes = 1000;
  ResidualBlock block = ResidualBlock::bottleneck;
  StridePlace stride_place = StridePlace::conv3x3;
  std::int64_t stem_width = 64;
  /// Number of blocks per stage. Stage s works at stem_width · 2^s channels, times 4 after a
  /// bottleneck.
  std::vector<std::int64_t> stages{3, 4, 6, 3};
  double dropout = 0.0;  ///< dropout before the classifier
};

/// Builds the network. Throws UserError for an image that is too small.
ModelGraph resnet(const ResnetShape& shape);

/// Builds VGG-16 (Simonyan and Zisserman, arXiv 1409.1556, configuration D): biased 3x3
/// convolutions without norms, and three linear layers on the flattened 1/32 image. Throws
/// UserError for an image below 32x32.
ModelGraph vgg16(const Input& input, std::int64_t classes, double dropout);

}  // namespace heteroperf
