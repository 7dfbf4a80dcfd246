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
    for (std::int64_t c = 0; c < r.columns; ++c) {
      [&](auto... values) {
        f(values...);
        (operands.row(row, r.columns).store(c, values), ...);
      }(operands.row(row, r.columns).load(c)...);
    }
  }
}

/// A sum stays in float64 until all rows are in it.
template <class O>
double divisor(const O&, std::int64_t) {
  return 1;
}
template <class T>
double divisor(const ColumnSum<T, true>&, std::int64_t rows) {
  return static_cast<double>(rows);
}
template <class F, class... Operands>
void sum_columns(RowRange r, F f, Operands... operands) {
  for (std::int64_t c = 0; c < r.columns; ++c) {
    // Values of sums begin at zero and pass from row to row; the others are loaded in each.
    [&](auto... values) {
      for (std::int64_t row = r.begin; row < r.end; ++row) {
        ((Operands::sum ? void() : void(values = operands.row(row, r.columns).load(c))), ...);
        f(values...);
        ((Operands::sum ? void() : operands.row(row, r.columns).store(c, values)), ...);
      }
      const auto store = [&](const auto& operand, auto value) {
        if constexpr (std::remove_cvref_t<decltype(operand)>::sum) {
          operand.row(0, 0).store(c, value / divisor(operand, r.end - r.begin));
        }
      };
      (store(operands, values), ...);
    }(decltype(operands.row(0, 0).load(0))()...);
  }
}

/// One row.
struct ReferenceRow {
  std::int64_t index, columns;

  template <class A, class Term>
  A sum(Term term) const {
    A sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += term(c);
    return sum;
  }
  template <class A, class Add>
  TwoSums<A> sums(Add add) const {
    TwoSums<A> result{0, 0};
    for (std::int64_t c = 0; c < columns; ++c) add(c, result.first, result.second);
    return result;
  }
  template <class A, class Value>
  A largest(Value value) const {
    A top = value(0);
    for (std::int64_t c = 1; c < columns; ++c) top = value(c) > top ? value(c) : top;
    return top;
  }
  template <class Action>
  void each(Action action) const {
    for (std::int64_t c = 0; c < columns; ++c) action(c);
  }
  template <class Action>
  void each(std::int64_t groups, std::int64_t count, Action action) const {
    for (std::int64_t i = 0; i < groups * count; ++i) action(i / count, i % count);
  }
  void wait() const {}
  bool leads() const { return true; }
};
using Row = ReferenceRow;

/// body(Row) on every row.
template <class Body>
void rows(RowRange r, Body body) {
  for (std::int64_t row = r.begin; row < r.end; ++row) body(Row{row, r.columns});
}
constexpr bool rows_sum_columns = false;

/// See host_skeletons.hpp.
template <class Walk, class Add, class Finish, class One, class Two, class... Results>
void fold(FoldRange r, Walk walk, Add add, Finish finish, One one, Two two, Results... results) {
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    for (std::int64_t c = r.first_column; c < r.last_column; ++c) {
      [&](auto... values) {
        walk(walk.place(row), [&](std::int64_t other, auto step) {
          add(one.row(other, r.columns).load(c), two.row(other, r.columns).load(c), step,
              values...);
        });
        finish(values...);
        (results.row(row, r.columns).store(c, values), ...);
      }(results.row(row, r.columns).load(c)...);
    }
  }
}

}  // namespace
}  // namespace heteroperf
