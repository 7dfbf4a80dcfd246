#pragma once

#include "workloads/model_graph.hpp"

namespace heteroperf {

/// VGG-16 (Simonyan and Zisserman, arXiv 1409.1556, configuration D): biased 3x3 convolutions
/// without norms, three linear layers on the flattened 1/32 image. Throws UserError for an image
/// below 32x32.
ModelGraph vgg16(const Input& input, std::int64_t classes, double dropout);

}  // namespace heteroperf
