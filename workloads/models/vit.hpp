#pragma once

#include "workloads/models/transformer.hpp"

namespace heteroperf {

/// A vision transformer (Dosovitskiy et al., arXiv 2010.11929): patches by one convolution, class
/// token, learned positions, pre-norm blocks with erf GELU, head on the class token. Patches that
/// do not fill the image's edge are dropped. Throws UserError for an image below one patch.
struct VitShape {
  Input input;
  std::int64_t classes = 1000;
  std::int64_t patch = 16;
  std::int64_t layers = 12, width = 768, heads = 12;
  double dropout = 0.0;
};

ModelGraph vit(const VitShape& shape);

}  // namespace heteroperf
