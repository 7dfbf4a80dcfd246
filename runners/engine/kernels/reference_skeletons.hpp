#pragma once

// The reference's skeletons: one element after the other, in the order in which the formulas name
// them. Everything is computed in float64 (scalar_types.hpp) and rounded where it is stored. All
// that a new device has to bring is what stands here.
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

/// f on every element.
template <class T, class F, class... Operands>
void map(RowRange r, F f, Operands... operands) {
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    for (std::int64_t c = 0; c < r.columns; ++c) apply(f, c, operands.row(row, r.columns)...);
  }
}

/// A sum stays in float64 until all rows are in it.
template <class F, class... Operands>
void sum_columns(RowRange r, F f, Operands... operands) {
  for (std::int64_t c = 0; c < r.columns; ++c) {
    const ColumnPart whole{r.begin, r.end, 1, c, r.columns, 0, r.end - r.begin};
    sum_column(
        whole, true, f, [](auto sum) { return sum; }, operands...);
  }
}

using Row = RowOf<OneThread>;
/// body(Row) on every row.
template <class Body>
void rows(RowRange r, Body body) {
  for (std::int64_t row = r.begin; row < r.end; ++row) body(Row{{}, row, r.columns});
}
constexpr bool rows_sum_columns = false;

/// See host_skeletons.hpp.
template <class... Description>
void fold(FoldRange r, Description... description) {
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    for (std::int64_t c = r.first_column; c < r.last_column; ++c) {
      fold_element(row, c, r.columns, description...);
    }
  }
}

}  // namespace
}  // namespace heteroperf
