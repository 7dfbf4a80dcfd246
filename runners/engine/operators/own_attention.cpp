// Our attention of float32 over packed rows {queries, keys, values}, written out on the tiles of
// our products (kernels/product_kernels.hpp).
//
// One head is small: its keys and values, packed for each of its query heads, stay in a cache.
// Queries pass in blocks of some tiles. A block's scores against the keys that it may see are one
// product, the softmax runs over them in place, and the probabilities times the values are the
// second product. Of causal blocks no tile is made whose queries all lie before its keys. The
// backward pass makes the probabilities again from the kept logarithms of their sums, as flash
// attention does (Dao et al., arXiv:2205.14135, algorithm 4), and has five products per block;
// those of the keys' and values' gradients take the scores' columns as rows, where they lie.
//
// Heads are shared among the threads; those that share keys and values stay on one thread, so that
// sums have one order.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/own_products.hpp"

namespace heteroperf {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by * by; }

/// A matrix in memory: rows of a head, or a block of scores.
struct Rows {
  float* data;
  std::int64_t stride, rows;
  Rows from(std::int64_t first, std::int64_t count) const {
    return {data + first * stride, stride, count};
  }
};

/// A matrix {inner, columns} packed for the right side of products.
struct Packed {
  const float* data;
  std::int64_t inner, columns;
};

/// The work of one thread on one head after the other.
class HeadPasses {
 public:
  explicit HeadPasses(const OwnAttention& a, std::int64_t length)
      : kernels_(active_device().products()),
        a_(a),
        length_(length),
        padded_(rounded_up(length, std::max<std::int64_t>(kernels_.tile_columns, score_lanes))),
        block_(tiles_of_block * kernels_.tile_rows) {
    const std::int64_t width = rounded_up(a.head_dim, kernels_.tile_columns);
    const std::int64_t by_keys = padded_ * std::max(a.head_dim, width);
    static thread_local PackedMemory memory;
    float* next = memory.room_for(3 * by_keys + 2 * block_ * padded_ + 2 * block_ * width);
    const auto take = [&](std::int64_t elements) { return std::exchange(next, next + elements); };
    first_ = take(by_keys);
    second_ = take(by_keys);
    third_ = take(by_keys);
    scores_ = take(block_ * padded_);
    gradients_ = take(block_ * padded_);
    block_queries_ = take(block_ * width);
    block_outputs_ = take(block_ * width);
  }

  void forward(Rows query, Rows key, Rows value, Rows out, float* log_sums, float slope) {
    const Packed keys = transposed(key, first_), values = plain(value, second_);
    for (std::int64_t first = 0; first < length_; first += block_) {
      const ScoreRows block = block_at(first, slope);
      const Rows scores{scores_, padded_, block.rows};
      score(query.from(first, block.rows), keys, block, scores);
      kernels_.softmax_rows(block, scores_, log_sums + first);
      weigh(scores, values, block, out.from(first, block.rows));
    }
  }

  /// The gradients of a query head; those of its keys and values are overwritten or added to.
  void backward(Rows query, Rows key, Rows value, Rows out, Rows out_gradient,
                const float* log_sums, float slope, Rows query_gradient, Rows key_gradient,
                Rows value_gradient, Accumulation accumulation) {
    const Packed keys = transposed(key, first_), values = transposed(value, second_),
                 key_rows = plain(key, third_);
    // The last block sees all keys, so its gradients may overwrite.
    for (std::int64_t first = (length_ - 1) / block_ * block_; first >= 0; first -= block_) {
      const ScoreRows block = block_at(first, slope);
      const Rows q = query.from(first, block.rows), dy = out_gradient.from(first, block.rows);
      const Rows scores{scores_, padded_, block.rows}, slopes{gradients_, padded_, block.rows};
      score(q, keys, block, scores);
      kernels_.softmax_again(block, scores_, log_sums + first);
      score(dy, values, block, slopes);
      kernels_.softmax_backward(block, scores_, gradients_, out.from(first, 0).data, dy.data,
                                a_.head_dim, out.stride);
      weigh(slopes, key_rows, block, query_gradient.from(first, block.rows));
      add_columns(scores, plain(dy, block_outputs_), block, value_gradient, accumulation);
      add_columns(slopes, plain(q, block_queries_), block, key_gradient, accumulation);
      accumulation = Accumulation::add;
    }
  }

 private:
  /// Tiles of queries that pass together: the gradients of keys and values are read and written
  /// once per block.
  static constexpr std::int64_t tiles_of_block = 4;

  ScoreRows block_at(std::int64_t first, float slope) const {
    const std::int64_t rows = std::min(block_, length_ - first);
    return {first,   rows,      a_.causal ? first + rows : length_,
            padded_, a_.causal, 1 / std::sqrt(static_cast<float>(a_.head_dim)),
            slope};
  }

  /// The rows as columns: {head_dim, rows}.
  Packed transposed(Rows rows, float* packed) const {
    kernels_.pack({rows.data, rows.stride, 1}, rows.rows, a_.head_dim, kernels_.tile_columns,
                  packed);
    return {packed, a_.head_dim, rows.rows};
  }
  /// {rows, head_dim}.
  Packed plain(Rows rows, float* packed) const {
    kernels_.pack({rows.data, 1, rows.stride}, a_.head_dim, rows.rows, kernels_.tile_columns,
                  packed);
    return {packed, rows.rows, a_.head_dim};
  }

  /// The keys that any query of the tile from the block's row `row` on sees.
  std::int64_t keys_of_tile(const ScoreRows& block, std::int64_t row) const {
    const std::int64_t behind = block.first + std::min(row + kernels_.tile_rows, block.rows);
    return a_.causal ? std::min(behind, block.keys) : block.keys;
  }

  /// The tile of out = a · b at (row, column), of b's first `columns`; `inner` terms count.
  void multiply(Rows a, const Packed& b, std::int64_t inner, std::int64_t columns, Rows out,
                std::int64_t row, std::int64_t column) const {
    const ProductSegment terms{0, 0, inner};
    kernels_.multiply_rows({&terms, 1, a.data + row * a.stride, a.stride, b.data + column * b.inner,
                            kernels_.tile_columns, out.data + row * out.stride + column, out.stride,
                            std::min(kernels_.tile_rows, a.rows - row), columns - column},
                           Accumulation::overwrite);
  }

  /// out = rows of a · a column of b for each key, in the tiles that have a key seen.
  void score(Rows a, const Packed& b, const ScoreRows& block, Rows out) const {
    for (std::int64_t column = 0; column < block.keys; column += kernels_.tile_columns) {
      for (std::int64_t row = 0; row < a.rows; row += kernels_.tile_rows) {
        if (column >= keys_of_tile(block, row)) continue;
        multiply(a, b, b.inner, block.keys, out, row, column);
      }
    }
  }

  /// out = what the block's rows have for each key · a row of b for each key.
  void weigh(Rows of_keys, const Packed& b, const ScoreRows& block, Rows out) const {
    for (std::int64_t column = 0; column < b.columns; column += kernels_.tile_columns) {
      for (std::int64_t row = 0; row < of_keys.rows; row += kernels_.tile_rows) {
        multiply(of_keys, b, keys_of_tile(block, row), b.columns, out, row, column);
      }
    }
  }

  /// out (+)= what the block's rows have for each key, as rows, · b, which has a row for each
  /// query.
  void add_columns(Rows of_keys, const Packed& b, const ScoreRows& block, Rows out,
                   Accumulation accumulation) const {
    for (std::int64_t column = 0; column < b.columns; column += kernels_.tile_columns) {
      for (std::int64_t key = 0; key < block.keys; key += kernels_.tile_rows) {
        // Queries before a tile's first key see none of it.
        const std::int64_t first = a_.causal ? std::max<std::int64_t>(0, key - block.first) : 0;
        const ProductSegment terms{0, 0, block.rows - first};
        kernels_.multiply_columns(
            {&terms, 1, of_keys.data + first * of_keys.stride + key, of_keys.stride,
             b.data + column * b.inner + first * kernels_.tile_columns, kernels_.tile_columns,
             out.data + key * out.stride + column, out.stride,
             std::min(kernels_.tile_rows, block.keys - key), b.columns - column},
            accumulation);
      }
    }
  }

  const ProductKernels& kernels_;
  const OwnAttention& a_;
  std::int64_t length_, padded_, block_;
  float *first_, *second_, *third_, *scores_, *gradients_, *block_queries_, *block_outputs_;
};

/// The rows of one head inside a tensor {B, T, …} that is contiguous.
Rows head_rows(const at::Tensor& tensor, std::int64_t sample, std::int64_t column) {
  const std::int64_t length = tensor.size(1), stride = tensor.size(2);
  return {tensor.data_ptr<float>() + sample * length * stride + column, stride, length};
}

float slope_of(const OwnAttention& a, std::int64_t head) {
  return a.slopes.empty() ? 0 : a.slopes[head];
}

/// Calls body(passes, sample, key head) for all, shared among the threads.
template <class Body>
void for_key_heads(const OwnAttention& a, const at::Tensor& packed, const Body& body) {
  at::parallel_for(0, packed.size(0) * a.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    HeadPasses passes(a, packed.size(1));
    for (std::int64_t i = begin; i < end; ++i) body(passes, i / a.kv_heads, i % a.kv_heads);
  });
}

}  // namespace

void own_attention(const OwnAttention& a, const at::Tensor& packed, const at::Tensor& out,
                   const at::Tensor& log_sums) {
  const std::int64_t d = a.head_dim, length = packed.size(1), group = a.heads / a.kv_heads;
  HETEROPERF_EXPECT(packed.size(2) == (a.heads + 2 * a.kv_heads) * d);
  for_key_heads(a, packed, [&](HeadPasses& passes, std::int64_t sample, std::int64_t kv) {
    for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      passes.forward(
          head_rows(packed, sample, head * d), head_rows(packed, sample, (a.heads + kv) * d),
          head_rows(packed, sample, (a.heads + a.kv_heads + kv) * d),
          head_rows(out, sample, head * d),
          log_sums.data_ptr<float>() + (sample * a.heads + head) * length, slope_of(a, head));
    }
  });
}

void own_attention_backward(const OwnAttention& a, const at::Tensor& packed, const at::Tensor& out,
                            const at::Tensor& log_sums, const at::Tensor& out_gradient,
                            const at::Tensor& gradient) {
  const std::int64_t d = a.head_dim, length = packed.size(1), group = a.heads / a.kv_heads;
  for_key_heads(a, packed, [&](HeadPasses& passes, std::int64_t sample, std::int64_t kv) {
    const std::int64_t key = (a.heads + kv) * d, value = (a.heads + a.kv_heads + kv) * d;
    Accumulation how = Accumulation::overwrite;
    for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const std::int64_t query = head * d;
      passes.backward(head_rows(packed, sample, query), head_rows(packed, sample, key),
                      head_rows(packed, sample, value), head_rows(out, sample, query),
                      head_rows(out_gradient, sample, query),
                      log_sums.data_ptr<float>() + (sample * a.heads + head) * length,
                      slope_of(a, head), head_rows(gradient, sample, query),
                      head_rows(gradient, sample, key), head_rows(gradient, sample, value), how);
      how = Accumulation::add;
    }
  });
}

}  // namespace heteroperf
