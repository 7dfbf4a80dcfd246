#pragma once

// The inner loops of products of matrices and of convolutions, C (+)= A · B, in float32.
//
// A product reads every element of its operands many times, so it is fast when what it reads next
// is in a register or the nearest cache (Goto and van de Geijn 2008, doi:10.1145/1356052.1356053).
// A *tile* of C, some rows by two vectors, stays in registers while it takes in one column of A and
// one row of B after the other: per step it loads rows + two vectors and multiplies rows · two
// vectors. So that these loads are of neighbours in memory, operands that lie otherwise are
// *packed* first: A in panels of as many rows as a tile has, B in panels of as many columns, each
// panel with its inner extent outermost. The last panel of B is filled up with zeros, and of its
// tiles only what lies inside C is written; tiles of A's last rows are flatter.
//
// The terms of a tile's sum need not lie in one piece: a tile passes through *segments*, each of
// which says where the next columns of A and rows of B begin. With them the same tile computes a
// convolution, whose terms are those taps of a window that lie inside the image
// (operators/own_convolution.cpp).
//
// Whoever calls cuts the product into blocks whose packed panels stay in the caches
// (operators/product.cpp). The vectors are the compiler's own type, so one source serves all
// instruction sets.
#include <algorithm>

#include "runners/engine/kernels/attention_kernels.hpp"
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t vector_bytes = 64, tile_rows = 14;  // of 32 registers 28 are sums
#elif defined(__AVX__)
constexpr std::int64_t vector_bytes = 32, tile_rows = 6;  // of 16 registers 12 are sums
#else
constexpr std::int64_t vector_bytes = 16, tile_rows = 6;
#endif
constexpr std::int64_t lanes = vector_bytes / static_cast<std::int64_t>(sizeof(float));
constexpr std::int64_t tile_vectors = 2, tile_columns = tile_vectors * lanes;

using Vector [[gnu::vector_size(vector_bytes)]] = float;
/// The same values anywhere in an array of floats.
using UnalignedVector [[gnu::vector_size(vector_bytes), gnu::aligned(4), gnu::may_alias]] = float;

/// The way a tile reads A, whose rows or columns lie `a_stride` apart. A packed panel is columns.
enum class PanelOfA { rows, columns };

/// One tile of exactly `rows` rows. Rows in place share a pointer by threes, because a processor
/// adds up to twice a register to one.
template <PanelOfA panel, int rows>
[[gnu::noinline]] void multiply_tile(const ProductTile& tile, Accumulation accumulation) {
  constexpr int together = 3;
  Vector sums[rows][tile_vectors] = {};
  const float* lines[(rows + together - 1) / together];
  for (std::int64_t s = 0; s < tile.count; ++s) {
    const ProductSegment& segment = tile.segments[s];
    const float* __restrict a = tile.a + segment.a;
    const float* __restrict b = tile.b + segment.b;
    const std::int64_t a_stride = tile.a_stride, b_stride = tile.b_stride, length = segment.length;
    if (panel == PanelOfA::rows) {
      for (int r = 0; r < rows; r += together) lines[r / together] = a + r * a_stride;
    }
    for (std::int64_t k = 0; k < length; ++k) {
      Vector row[tile_vectors];
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        row[v] = *reinterpret_cast<const UnalignedVector*>(b + v * lanes);
      }
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const float value =
            panel == PanelOfA::columns ? a[r] : lines[r / together][k + r % together * a_stride];
#pragma GCC unroll 2
        for (int v = 0; v < tile_vectors; ++v) sums[r][v] += value * row[v];
      }
      if (panel == PanelOfA::columns) a += a_stride;
      b += b_stride;
    }
  }
  const bool adds = accumulation == Accumulation::add;
  if (tile.columns >= tile_columns) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) {
        // Not `auto`, which would forget the alignment.
        UnalignedVector* const out =
            reinterpret_cast<UnalignedVector*>(tile.c + r * tile.c_stride + v * lanes);
        *out = adds ? *out + sums[r][v] : sums[r][v];
      }
    }
    return;
  }
  // The sums are copied, so that those of whole tiles never leave their registers.
  alignas(vector_bytes) float border[rows * tile_columns];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < tile_vectors; ++v) {
      *reinterpret_cast<Vector*>(border + r * tile_columns + v * lanes) = sums[r][v];
    }
  }
  for (int r = 0; r < rows; ++r) {
    const float* const sum = border + r * tile_columns;
    float* const out = tile.c + r * tile.c_stride;
    for (std::int64_t c = 0; c < tile.columns; ++c) out[c] = adds ? out[c] + sum[c] : sum[c];
  }
}

/// Calls body with a count, up to `most`, that it is compiled for.
template <int most, class Body>
HETEROPERF_KERNEL void with_count(std::int64_t count, const Body& body) {
  if constexpr (most > 1) {
    if (count < most) return with_count<most - 1>(count, body);
  }
  body(Fixed<most>());
}
template <PanelOfA panel>
void multiply(const ProductTile& tile, Accumulation accumulation) {
  with_count<tile_rows>(tile.rows, [&](auto rows) HETEROPERF_INLINED {
    multiply_tile<panel, decltype(rows)::value>(tile, accumulation);
  });
}

/// Eight lines of eight neighbours each, turned: to[k][l] = from[l][k].
HETEROPERF_KERNEL void turn_eight(const float* __restrict from, std::int64_t line_stride,
                                  float* __restrict to, std::int64_t width) {
  using Eight [[gnu::vector_size(32)]] = float;
  using Places [[gnu::vector_size(32)]] = std::int32_t;
  using UnalignedEight [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;
  // Two lines are joined neighbour by neighbour, twice, within halves; then halves change places.
  Eight lines[8], joined[8];
#pragma GCC unroll 8
  for (int l = 0; l < 8; ++l) {
    lines[l] = *reinterpret_cast<const UnalignedEight*>(from + l * line_stride);
  }
#pragma GCC unroll 2
  for (int time = 0; time < 2; ++time) {
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
      const Eight one = lines[p / 2 * 4 + p % 2], other = lines[p / 2 * 4 + p % 2 + 2];
      joined[2 * p] = __builtin_shuffle(one, other, Places{0, 8, 1, 9, 4, 12, 5, 13});
      joined[2 * p + 1] = __builtin_shuffle(one, other, Places{2, 10, 3, 11, 6, 14, 7, 15});
    }
#pragma GCC unroll 8
    for (int l = 0; l < 8; ++l) lines[l] = joined[l];
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    *reinterpret_cast<UnalignedEight*>(to + k * width) =
        __builtin_shuffle(lines[k], lines[k + 4], Places{0, 1, 2, 3, 8, 9, 10, 11});
    *reinterpret_cast<UnalignedEight*>(to + (k + 4) * width) =
        __builtin_shuffle(lines[k], lines[k + 4], Places{4, 5, 6, 7, 12, 13, 14, 15});
  }
}

/// Packs whole panels of lines that lie side by side in memory, in the order in which memory has
/// them: a panel by itself would take a few numbers of each of its rows, and the next panel fetch
/// the same rows again.
template <int width>
[[gnu::noinline]] void pack_neighbours(const ProductOperand& operand, std::int64_t panels,
                                       std::int64_t inner, float* __restrict packed) {
  constexpr std::int64_t most_together = 96 / width;
  for (std::int64_t first = 0; first < panels; first += most_together) {
    const std::int64_t together = std::min(most_together, panels - first);
    const float* row = operand.data + first * width;
    float* to_row = packed + first * width * inner;
    for (std::int64_t k = 0; k < inner; ++k) {
      const float* __restrict from = row;
      float* __restrict to = to_row;
      for (std::int64_t p = 0; p < together; ++p) {
        __builtin_memcpy(to, from, width * sizeof(float));
        from += width;
        to += width * inner;
      }
      row += operand.inner_stride;
      to_row += width;
    }
  }
}
/// Packs up to `width` lines into one panel; zeros stand for the missing ones.
void pack_panel(const ProductOperand& operand, std::int64_t lines, std::int64_t inner,
                std::int64_t width, float* __restrict packed) {
  const std::int64_t along = operand.inner_stride, across = operand.line_stride;
  const float* __restrict from = operand.data;
  std::int64_t k = 0;
  if (along == 1 && lines == width && width % 8 == 0) {
    for (; k + 8 <= inner; k += 8) {
      for (std::int64_t l = 0; l < width; l += 8) {
        turn_eight(from + l * across + k, across, packed + k * width + l, width);
      }
    }
  }
  for (; k < inner; ++k) {
    const float* __restrict row = from + k * along;
    float* __restrict to = packed + k * width;
    for (std::int64_t l = 0; l < lines; ++l) to[l] = row[l * across];
    for (std::int64_t l = lines; l < width; ++l) to[l] = 0;
  }
}

/// Packs lines of an operand into panels of `width`, one behind the other.
void pack_panels(const ProductOperand& operand, std::int64_t lines, std::int64_t inner,
                 std::int64_t width, float* packed) {
  std::int64_t line = 0;
  if (operand.line_stride == 1) {
    line = lines / width * width;
    const auto pack = [&](auto fixed) HETEROPERF_INLINED {
      pack_neighbours<decltype(fixed)::value>(operand, lines / width, inner, packed);
    };
    width == tile_columns ? pack(Fixed<tile_columns>()) : with_count<tile_rows>(width, pack);
  }
  for (; line < lines; line += width) {
    pack_panel(
        {operand.data + line * operand.line_stride, operand.line_stride, operand.inner_stride},
        std::min(width, lines - line), inner, width, packed + line * inner);
  }
}

constexpr ProductKernels product_table{tile_rows,
                                       tile_columns,
                                       pack_panels,
                                       multiply<PanelOfA::rows>,
                                       multiply<PanelOfA::columns>,
                                       softmax_rows,
                                       softmax_again,
                                       softmax_backward};

}  // namespace
}  // namespace heteroperf
