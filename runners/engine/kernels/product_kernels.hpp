#pragma once

// The inner loops of a matrix product, C (+)= A · B, in float32.
//
// A product reads every element of its operands many times, so it is fast when what it reads next
// is in a register or the nearest cache (Goto and van de Geijn 2008, doi:10.1145/1356052.1356053).
// A *tile* of C, some rows by two vectors, stays in registers while it takes in one column of A and
// one row of B after the other: per step it loads rows + two vectors and multiplies rows · two
// vectors. So that these loads are of neighbours in memory, whatever the layout of the operands,
// both are *packed* first: A in panels of as many rows as a tile has, B in panels of as many
// columns, each panel with its inner extent outermost. Panels at the border are filled with zeros,
// and the part of their tile that lies inside is copied out.
//
// Whoever calls cuts the product into blocks whose packed panels stay in the caches
// (operators/product.cpp). The vectors are the compiler's own type, so one source serves all
// instruction sets.
#include "runners/engine/kernels/kernel_table.hpp"
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

/// A panel of A that lies packed, or whose rows are taken from the matrix itself.
enum class PanelOfA { packed, rows };

/// One tile of C (+)= panel of A · panel of B, `inner` long. Rows of the matrix are `a_stride`
/// apart; three of them share a pointer, because a processor adds up to twice a register to one.
template <PanelOfA panel, bool adds>
HETEROPERF_KERNEL void multiply_tile(std::int64_t inner, const float* __restrict a,
                                     std::int64_t a_stride, const float* __restrict b,
                                     float* __restrict c, std::int64_t stride) {
  constexpr std::int64_t together = 3;
  Vector sums[tile_rows][tile_vectors] = {};
  const float* rows[(tile_rows + together - 1) / together];
  for (std::int64_t r = 0; r < tile_rows; r += together) rows[r / together] = a + r * a_stride;
  for (std::int64_t k = 0; k < inner; ++k) {
    Vector row[tile_vectors];
    for (int v = 0; v < tile_vectors; ++v) row[v] = *reinterpret_cast<const Vector*>(b + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < tile_rows; ++r) {
      const float value = panel == PanelOfA::packed
                              ? a[k * tile_rows + r]
                              : rows[r / together][k + r % together * a_stride];
#pragma GCC unroll 2
      for (int v = 0; v < tile_vectors; ++v) sums[r][v] += value * row[v];
    }
    b += tile_columns;
  }
#pragma GCC unroll 16
  for (int r = 0; r < tile_rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < tile_vectors; ++v) {
      // Not `auto`, which would forget the alignment.
      UnalignedVector* const out = reinterpret_cast<UnalignedVector*>(c + r * stride + v * lanes);
      *out = adds ? *out + sums[r][v] : sums[r][v];
    }
  }
}

/// A tile at the border, of which only `rows` by `columns` lie inside C.
template <PanelOfA panel, bool adds>
void multiply_border(std::int64_t inner, const float* a, std::int64_t a_stride, const float* b,
                     float* c, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  alignas(vector_bytes) float tile[tile_rows * tile_columns];
  multiply_tile<panel, false>(inner, a, a_stride, b, tile, tile_columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t col = 0; col < columns; ++col) {
      float& out = c[r * stride + col];
      out = adds ? out + tile[r * tile_columns + col] : tile[r * tile_columns + col];
    }
  }
}

/// A block of C. A panel of B stays in the nearest cache while all panels of A pass by.
template <PanelOfA panel, bool adds>
void multiply_panels(const ProductBlock& block, const float* a, std::int64_t a_stride,
                     const float* b, float* c) {
  for (std::int64_t column = 0; column < block.columns; column += tile_columns) {
    const std::int64_t columns = block.columns - column;
    for (std::int64_t row = 0; row < block.rows; row += tile_rows) {
      const std::int64_t rows = block.rows - row;
      const float* const panel_a = a + row * (panel == PanelOfA::packed ? block.inner : a_stride);
      const float* const panel_b = b + column * block.inner;
      float* const tile = c + row * block.stride + column;
      if (rows >= tile_rows && columns >= tile_columns) {
        multiply_tile<panel, adds>(block.inner, panel_a, a_stride, panel_b, tile, block.stride);
      } else {
        multiply_border<panel, adds>(block.inner, panel_a, a_stride, panel_b, tile, block.stride,
                                     rows < tile_rows ? rows : tile_rows,
                                     columns < tile_columns ? columns : tile_columns);
      }
    }
  }
}

void multiply_packed(const ProductBlock& block, Accumulation accumulation, const float* a,
                     const float* b, float* c) {
  accumulation == Accumulation::add ? multiply_panels<PanelOfA::packed, true>(block, a, 1, b, c)
                                    : multiply_panels<PanelOfA::packed, false>(block, a, 1, b, c);
}

void multiply_rows(const ProductBlock& block, Accumulation accumulation, const float* a,
                   std::int64_t a_stride, const float* b, float* c) {
  accumulation == Accumulation::add
      ? multiply_panels<PanelOfA::rows, true>(block, a, a_stride, b, c)
      : multiply_panels<PanelOfA::rows, false>(block, a, a_stride, b, c);
}

/// Packs `count` lines of an operand, rows of A or columns of B, into panels of `width` lines.
/// Neighbours of a panel are a line's distance apart, or side by side where lines lie so in memory.
template <std::int64_t width>
void pack_panels(const ProductOperand& operand, std::int64_t count, std::int64_t inner,
                 float* __restrict packed) {
  const std::int64_t along = operand.inner_stride, across = operand.line_stride;
  for (std::int64_t first = 0; first < count; first += width, packed += width * inner) {
    const float* __restrict from = operand.data + first * across;
    if (count - first < width) {
      const std::int64_t lines = count - first;
      for (std::int64_t k = 0; k < inner; ++k) {
        for (std::int64_t l = 0; l < width; ++l) {
          packed[k * width + l] = l < lines ? from[l * across + k * along] : 0;
        }
      }
    } else if (across == 1) {
      for (std::int64_t k = 0; k < inner; ++k) {
#pragma GCC unroll 32
        for (std::int64_t l = 0; l < width; ++l) packed[k * width + l] = from[k * along + l];
      }
    } else {
      for (std::int64_t k = 0; k < inner; ++k) {
#pragma GCC unroll 32
        for (std::int64_t l = 0; l < width; ++l) {
          packed[k * width + l] = from[l * across + k * along];
        }
      }
    }
  }
}

constexpr ProductKernels product_table{
    tile_rows,       tile_columns, pack_panels<tile_rows>, pack_panels<tile_columns>,
    multiply_packed, multiply_rows};

}  // namespace
}  // namespace heteroperf
