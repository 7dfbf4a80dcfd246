#pragma once

#include "workloads/models/transformer.hpp"

namespace heteroperf {

/// BERT's encoder and pooler as published (Devlin et al., arXiv 1810.04805): token, position and
/// type embeddings with a norm, post-norm blocks with erf GELU, a tanh pooler on the first token.
/// The published model has no task head, so the loss reads the pooled vector as logits.
struct BertShape {
  std::int64_t layers = 12, width = 768, heads = 12;
  std::int64_t vocabulary = 30522;
  std::int64_t length = 512;
  std::int64_t positions = 512;  ///< rows of the learned table
  double dropout = 0.0;
};

/// Throws UserError when the sequence is longer than the position table.
ModelGraph bert(const BertShape& shape);

}  // namespace heteroperf
