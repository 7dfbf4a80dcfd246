#pragma once

// The host's skeletons: the loops that all its kernels share. Rows are walked one after the other,
// and the columns of a row are the loop of which a compiler makes vector code. Each skeleton works
// on the calling thread's range of rows alone.
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

template <class F, class... Views>
HETEROPERF_KERNEL void apply_all(const F& f, std::int64_t first, std::int64_t last,
                                 Views... views) {
#pragma omp simd
  for (std::int64_t c = first; c < last; ++c) apply(f, c, views...);
}

/// Four vectors of float32. The number of elements that a compiler knows it may work on without a
/// question in between: rows are often as short as that.
#if defined(__AVX512F__)
constexpr std::int64_t stretch = 64;
#elif defined(__AVX__)
constexpr std::int64_t stretch = 32;
#else
constexpr std::int64_t stretch = 16;
#endif
template <class F, class... Views>
HETEROPERF_KERNEL void apply_row(const F& f, std::int64_t columns, Views... views) {
  std::int64_t first = 0;
  for (; first + stretch <= columns; first += stretch) {
    apply_all(f, first, first + stretch, views...);
  }
  if (first < columns) apply_all(f, first, columns, views...);
}

/// f on every element, row by row. A width that the compiler knows leaves no question to a row.
template <class F, class... Operands>
HETEROPERF_KERNEL void apply_rows(RowRange r, const F& f, Operands... operands) {
  constexpr std::int64_t narrow_width = 64;
  const auto each = [&](const auto& apply_to) HETEROPERF_INLINED {
    for (std::int64_t row = r.begin; row < r.end; ++row) {
      apply_to(operands.row(Operands::per_block ? 0 : row, r.columns)...);
    }
  };
  if (r.columns == narrow_width) {
    each([&](auto... views) HETEROPERF_INLINED { apply_all(f, 0, narrow_width, views...); });
  } else {
    each([&](auto... views) HETEROPERF_INLINED { apply_row(f, r.columns, views...); });
  }
}

/// f on every element. What is written may be what is read.
template <class T, class F, class... Operands>
HETEROPERF_KERNEL void map(RowRange r, F f, Operands... operands) {
  if constexpr ((Operands::dense && ...)) {
    const std::int64_t columns = r.columns;
    apply_all(f, r.begin * columns, r.end * columns, operands.row(0, 0)...);
  } else {
    apply_rows(r, f, operands...);
  }
}

/// Sets a sum to zero.
template <class O>
HETEROPERF_KERNEL void begin_sum(const O& operand, std::int64_t columns) {
  if constexpr (O::sum) {
    for (std::int64_t c = 0; c < columns; ++c) operand.at[c] = 0;
  }
}
/// Divides a mean by the number of its rows.
template <class O>
HETEROPERF_KERNEL void end_sum(const O& operand, std::int64_t columns, std::int64_t rows) {
  if constexpr (requires { requires O::mean; }) {
    const auto share = 1 / static_cast<std::remove_cvref_t<decltype(*operand.at)>>(rows);
    for (std::int64_t c = 0; c < columns; ++c) operand.at[c] *= share;
  }
}

/// f on every element, and sums over the rows of the range.
template <class F, class... Operands>
HETEROPERF_KERNEL void sum_columns(RowRange r, F f, Operands... operands) {
  (begin_sum(operands, r.columns), ...);
  apply_rows(r, f, operands...);
  (end_sum(operands, r.columns, r.end - r.begin), ...);
}

using Row = RowOf<OneThread>;
/// body(Row) on every row.
template <class Body>
HETEROPERF_KERNEL void rows(RowRange r, Body body) {
  for (std::int64_t row = r.begin; row < r.end; ++row) body(Row{{}, row, r.columns});
}
/// The pass over a row adds to sums over the rows, too: each value is read once.
constexpr bool rows_sum_columns = true;

/// Results of a fold for so many columns, which stay in registers on the walk, or near them.
constexpr std::int64_t fold_columns_at_once = 64;
template <class V>
struct FoldLanes {
  V of[fold_columns_at_once];
};
/// Folds columns [first, first + count) of a row; a `fixed` count above 0 is known to the compiler.
template <std::int64_t fixed, class Place, class Walk, class Add, class Finish, class One,
          class Two, class... Views>
HETEROPERF_KERNEL void fold_columns(std::int64_t first, std::int64_t left, std::int64_t columns,
                                    const Place& place, const Walk& walk, const Add& add,
                                    const Finish& finish, One one, Two two, Views... views) {
  const std::int64_t count = fixed > 0 ? fixed : left;
  [&](auto... lanes) HETEROPERF_INLINED {
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) ((lanes.of[c] = views.load(first + c)), ...);
    walk(place, [&](std::int64_t other, auto step) HETEROPERF_INLINED {
      const auto a = one.row(other, columns);
      const auto b = two.row(other, columns);
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) {
        add(a.load(first + c), b.load(first + c), step, lanes.of[c]...);
      }
    });
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) {
      finish(lanes.of[c]...);
      (views.store(first + c, lanes.of[c]), ...);
    }
  }(FoldLanes<decltype(views.load(0))>()...);
}

/// For every element of the range, folds the elements of the same column in other rows, those that
/// walk(place, visit) visits with visit(other row, step). add(value of one, value of two, step,
/// results…) takes them in this order; the results begin as their operands load them, and
/// finish(results…) has the last word.
template <class Walk, class Add, class Finish, class One, class Two, class... Results>
HETEROPERF_KERNEL void fold(FoldRange r, Walk walk, Add add, Finish finish, One one, Two two,
                            Results... results) {
  if (r.begin >= r.end) return;
  auto place = walk.place(r.begin);
  for (std::int64_t row = r.begin; row < r.end; ++row, walk.next(place)) {
    std::int64_t first = r.first_column;
    for (; first + fold_columns_at_once <= r.last_column; first += fold_columns_at_once) {
      fold_columns<fold_columns_at_once>(first, 0, r.columns, place, walk, add, finish, one, two,
                                         results.row(row, r.columns)...);
    }
    if (first == r.last_column) continue;
    fold_columns<0>(first, r.last_column - first, r.columns, place, walk, add, finish, one, two,
                    results.row(row, r.columns)...);
  }
}

}  // namespace
}  // namespace heteroperf
