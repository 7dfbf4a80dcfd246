// Our product of matrices. It cuts B into chunks of 1 to 4 MiB, which a cache that the cores
// share can keep, and packs one after the other. Then the threads take blocks of rows of A, small
// enough for a cache of their own, and multiply each by all of the chunk (the loops of Goto and van
// de Geijn 2008, doi:10.1145/1356052.1356053; the innermost ones are kernels/product_kernels.hpp).
// Sums run along the chunks in order and are never split between threads, so their bits depend on
// the shape alone.
#include <ATen/Parallel.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/own_products.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t chunk_columns = 1024;
/// A panel of B as long as a chunk takes 32 KiB, the nearest cache of most processors.
constexpr std::int64_t panel_elements = 8192;
/// Elements of B one thread should pack before a second one is worth waking.
constexpr std::int64_t packed_per_thread = std::int64_t{1} << 16;
/// Rows of a block of A: a whole number of tiles of all instruction sets.
constexpr std::int64_t block_rows = 84;

/// One chunk of B with the part of A that meets it.
struct Chunk {
  std::int64_t column, columns, inner, inner_extent;
};

/// A part of C by the rows of A and the panels of a chunk that make it.
struct Block {
  std::int64_t row, rows, first_panel, end_panel;
};

/// The operands as the kernels see them: rows of A and columns of B are lines.
struct OwnProduct {
  OwnProduct(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right)
      : kernels(active_device().products()),
        rows(left.size(0)),
        columns(right.size(1)),
        inner(left.size(1)),
        a{left.const_data_ptr<float>(), left.stride(0), left.stride(1)},
        b{right.const_data_ptr<float>(), right.stride(1), right.stride(0)},
        c(out.mutable_data_ptr<float>()),
        stride(out.stride(0)) {}

  void run(Accumulation accumulation) const {
    static thread_local PackedMemory memory;
    float* const packed = memory.room_for(panels(std::min(columns, chunk_columns)) *
                                          kernels.tile_columns * std::min(inner, chunk_inner()));
    for (std::int64_t column = 0; column < columns; column += chunk_columns) {
      Accumulation how = accumulation;
      for (std::int64_t k = 0; k < inner; k += chunk_inner()) {
        const Chunk chunk{column, std::min(chunk_columns, columns - column), k,
                          std::min(chunk_inner(), inner - k)};
        pack_b(chunk, packed);
        multiply(chunk, packed, how);
        how = Accumulation::add;
      }
    }
  }

  std::int64_t chunk_inner() const { return panel_elements / kernels.tile_columns; }
  std::int64_t panels(std::int64_t of_columns) const {
    return (of_columns + kernels.tile_columns - 1) / kernels.tile_columns;
  }

  /// Threads share the panels.
  void pack_b(const Chunk& chunk, float* packed) const {
    const std::int64_t width = kernels.tile_columns;
    const std::int64_t grain =
        std::max<std::int64_t>(1, packed_per_thread / (width * chunk.inner_extent));
    at::parallel_for(0, panels(chunk.columns), grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * width;
      const float* const from =
          b.data + (chunk.column + first) * b.line_stride + chunk.inner * b.inner_stride;
      kernels.pack({from, b.line_stride, b.inner_stride},
                   std::min(end * width, chunk.columns) - first, chunk.inner_extent, width,
                   packed + first * chunk.inner_extent);
    });
  }

  /// Tasks are blocks of rows; where these are fewer than threads, parts of the columns too.
  void multiply(const Chunk& chunk, const float* packed_b, Accumulation how) const {
    const std::int64_t across = panels(chunk.columns);
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    const std::int64_t parts = std::clamp<std::int64_t>(at::get_num_threads() / blocks, 1, across);
    at::parallel_for(0, blocks * parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / parts * block_rows, part = task % parts;
        multiply_block({row, std::min(block_rows, rows - row), across * part / parts,
                        across * (part + 1) / parts},
                       chunk, packed_b, how);
      }
    });
  }

  /// A panel of B stays in the nearest cache while all rows of A pass by. Rows that lie as columns
  /// in memory are packed first.
  void multiply_block(const Block& block, const Chunk& chunk, const float* packed_b,
                      Accumulation how) const {
    const std::int64_t height = kernels.tile_rows, width = kernels.tile_columns;
    const bool in_place = a.inner_stride == 1;
    const float* left = a.data + block.row * a.line_stride + chunk.inner * a.inner_stride;
    if (!in_place) left = pack_a(block, chunk, left);
    const ProductSegment whole{0, 0, chunk.inner_extent};
    for (std::int64_t panel = block.first_panel; panel < block.end_panel; ++panel) {
      const std::int64_t column = panel * width;
      for (std::int64_t row = 0; row < block.rows; row += height) {
        const std::int64_t line = in_place ? a.line_stride : chunk.inner_extent;
        const ProductTile tile{&whole,
                               1,
                               left + row * line,
                               in_place ? a.line_stride : height,
                               packed_b + column * chunk.inner_extent,
                               width,
                               c + (block.row + row) * stride + chunk.column + column,
                               stride,
                               std::min(height, block.rows - row),
                               chunk.columns - column};
        (in_place ? kernels.multiply_rows : kernels.multiply_columns)(tile, how);
      }
    }
  }

  const float* pack_a(const Block& block, const Chunk& chunk, const float* left) const {
    static thread_local PackedMemory memory;
    float* const packed = memory.room_for(block_rows * chunk.inner_extent);
    kernels.pack({left, a.line_stride, a.inner_stride}, block.rows, chunk.inner_extent,
                 kernels.tile_rows, packed);
    return packed;
  }

  const ProductKernels& kernels;
  std::int64_t rows, columns, inner;
  ProductOperand a, b;
  float* c;
  std::int64_t stride;
};

}  // namespace

void own_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                 Accumulation accumulation) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (accumulation == Accumulation::overwrite) out.zero_();
    return;
  }
  // The kernels write whole vectors of a row: a transposed result is the product the other way
  // round.
  if (out.stride(1) == 1 || out.size(1) == 1) {
    OwnProduct(out, a, b).run(accumulation);
  } else {
    HETEROPERF_EXPECT(out.stride(0) == 1);
    OwnProduct(out.t(), b.t(), a.t()).run(accumulation);
  }
}

}  // namespace heteroperf
