#pragma once

// Operands of kernels. A kernel is a function of the values of one element, row or window, and
// *operands* that say where each value lies: at the element itself, one per column, one per row, in
// a row that another array names. A skeleton (host_skeletons.hpp, reference_skeletons.hpp,
// cuda/skeletons.cuh) walks over rows and columns, loads, calls the function and stores. It takes
// an operand's row first: a *view*, whose load(column) and store(column, value) are all that is
// left for the inner loop.
//
// A function takes one argument per operand, in their order: values by value, and what it writes
// by reference.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

/// Stands for the value of an operand that a call leaves out.
struct Nothing {};
template <class A>
HETEROPERF_KERNEL A plus(A a, Nothing) {
  return a;
}
template <class A>
HETEROPERF_KERNEL A plus(A a, A b) {
  return a + b;
}

// ---------------------------------------------------------------- views of one row

template <class T>
struct ReadView {
  const T* at;
  HETEROPERF_KERNEL auto load(std::int64_t column) const { return widen(at[column]); }
  template <class V>
  HETEROPERF_KERNEL void store(std::int64_t, const V&) const {}
};
/// Its values are made by the function alone, or first loaded when `update` is set.
template <class T, bool update>
struct WriteView {
  T* at;
  HETEROPERF_KERNEL auto load(std::int64_t column) const {
    if constexpr (update) return widen(at[column]);
    return decltype(widen(*at))();
  }
  template <class V>
  HETEROPERF_KERNEL void store(std::int64_t column, const V& value) const {
    at[column] = narrow<T>(value);
  }
};
/// One value for a whole row.
template <class V>
struct ValueView {
  V value;
  HETEROPERF_KERNEL V load(std::int64_t) const { return value; }
  HETEROPERF_KERNEL void store(std::int64_t, const V&) const {}
};

// ---------------------------------------------------------------- operands

/// Operands that have a value for every element, all of them in one piece, are `dense`; those that
/// have a row for every block of rows are `per_block`, and `sum` where the function adds to it.
/// `aligned` says that whole packs of 16 bytes may be loaded.
template <bool is_dense, bool is_per_block = false, bool is_sum = false>
struct Operand {
  static constexpr bool dense = is_dense, per_block = is_per_block, sum = is_sum;
  bool aligned() const { return true; }
};
/// An operand in memory.
template <class T, bool... kind>
struct MemoryOperand : Operand<kind...> {
  T* at;
  HETEROPERF_KERNEL explicit MemoryOperand(T* data) : at(data) {}
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }
};

/// A value of the element.
template <class T>
struct Read : MemoryOperand<const T, true> {
  HETEROPERF_KERNEL explicit Read(const void* data) : Read::MemoryOperand(as<T>(data)) {}
  HETEROPERF_KERNEL ReadView<T> row(std::int64_t r, std::int64_t columns) const {
    return {this->at + r * columns};
  }
};
template <class T, bool update>
struct Written : MemoryOperand<T, true> {
  HETEROPERF_KERNEL explicit Written(void* data) : Written::MemoryOperand(as<T>(data)) {}
  HETEROPERF_KERNEL WriteView<T, update> row(std::int64_t r, std::int64_t columns) const {
    return {this->at + r * columns};
  }
};
template <class T>
using Write = Written<T, false>;
template <class T>
using Update = Written<T, true>;

/// One value per column, the same for all rows.
template <class T>
struct PerColumn : MemoryOperand<const T, false> {
  HETEROPERF_KERNEL explicit PerColumn(const void* data) : PerColumn::MemoryOperand(as<T>(data)) {}
  HETEROPERF_KERNEL ReadView<T> row(std::int64_t, std::int64_t) const { return {this->at}; }
};
/// One value per row.
template <class T>
struct PerRow : Operand<false> {
  const T* at;
  HETEROPERF_KERNEL explicit PerRow(const void* data) : at(as<T>(data)) {}
  HETEROPERF_KERNEL auto row(std::int64_t r, std::int64_t) const {
    return ValueView<decltype(widen(*at))>{widen(at[r])};
  }
};
/// Row r is row (r / repeat) mod `length` of a table.
template <class T>
struct TableRow : MemoryOperand<const T, false> {
  std::int64_t length, repeat;
  HETEROPERF_KERNEL TableRow(const void* data, std::int64_t rows, std::int64_t each = 1)
      : TableRow::MemoryOperand(as<T>(data)), length(rows), repeat(each) {}
  HETEROPERF_KERNEL ReadView<T> row(std::int64_t r, std::int64_t columns) const {
    return {this->at + r / repeat % length * columns};
  }
};
/// An operand that this call does not have.
struct Absent : Operand<true> {
  HETEROPERF_KERNEL ValueView<Nothing> row(std::int64_t, std::int64_t) const { return {}; }
};

/// The sum over the rows of a block, one per column; the function adds to it. Divided by the
/// block's rows at the end where `is_mean` is set.
template <class T, bool is_mean = false>
struct ColumnSum : MemoryOperand<T, false, true, true> {
  HETEROPERF_KERNEL explicit ColumnSum(void* data) : ColumnSum::MemoryOperand(as<T>(data)) {}
  HETEROPERF_KERNEL WriteView<T, true> row(std::int64_t, std::int64_t) const { return {this->at}; }
};
/// The value that a ColumnSum gave for the same block.
template <class T>
struct SumOfBlock : PerColumn<T> {
  static constexpr bool per_block = true;
  using PerColumn<T>::PerColumn;
};

/// A result of a fold that is added to what is there when `add` is set.
template <class T>
struct Added : MemoryOperand<T, true> {
  bool add;
  HETEROPERF_KERNEL Added(void* data, Accumulation accumulation)
      : Added::MemoryOperand(as<T>(data)), add(accumulation == Accumulation::add) {}
  struct View {
    T* at;
    bool add;
    HETEROPERF_KERNEL auto load(std::int64_t) const { return decltype(widen(*at))(); }
    template <class V>
    HETEROPERF_KERNEL void store(std::int64_t column, const V& value) const {
      at[column] = narrow<T>(add ? widen(at[column]) + value : value);
    }
  };
  HETEROPERF_KERNEL View row(std::int64_t r, std::int64_t columns) const {
    return {this->at + r * columns, add};
  }
};

/// A fold's rows [begin, end) and columns [first, last) of a matrix of `columns` columns.
struct FoldRange {
  std::int64_t begin, end, first_column, last_column, columns;
};
HETEROPERF_KERNEL FoldRange whole_rows(RowRange r) {
  return {r.begin, r.end, 0, r.columns, r.columns};
}

/// Walks know an element's row as a *place*: its number, or what a walk works out of it once. Each
/// visit has a step, whose type is the walk's. Steps of walks that `join` may be shared out between
/// threads, whose results are summed.
struct WalkByRow {
  static constexpr bool joins = false;
  HETEROPERF_KERNEL std::int64_t place(std::int64_t row) const { return row; }
  HETEROPERF_KERNEL void next(std::int64_t& row) const { ++row; }
};
/// Visits rows row · apart + i · stride for i below `count`. The step is i.
struct EvenWalk : WalkByRow {
  std::int64_t count, apart, stride;
  template <class Visit>
  HETEROPERF_KERNEL void operator()(std::int64_t row, const Visit& visit) const {
    for (std::int64_t i = 0; i < count; ++i) visit(row * apart + i * stride, i);
  }
};
/// Adds up the values of a walk.
struct AddUp {
  template <class A, class Step>
  HETEROPERF_KERNEL void operator()(A value, Nothing, Step, A& sum) const {
    sum += value;
  }
};
/// Leaves the results of a fold as they are.
struct Unchanged {
  template <class... R>
  HETEROPERF_KERNEL void operator()(R&...) const {}
};

/// Two sums over a row, of one pass.
template <class A>
struct TwoSums {
  A first, second;
};
/// Keeps what is one per row.
template <class T, class Row, class A>
HETEROPERF_KERNEL void keep_of_row(const Row& row, void* to, A value) {
  if (row.leads()) as<Kept<T>>(to)[row.index] = static_cast<Kept<T>>(value);
}

/// A constant that a function is compiled for.
template <auto constant>
struct Fixed {
  static constexpr auto value = constant;
};
/// Calls body with a Fixed truth.
template <class Body>
void with_flag(bool flag, const Body& body) {
  flag ? body(Fixed<true>()) : body(Fixed<false>());
}
/// Calls body with the operand, or with Absent where there are no data.
template <class O, class Body>
void where_given(const O& operand, const Body& body) {
  operand.at != nullptr ? body(operand) : body(Absent());
}

}  // namespace
}  // namespace heteroperf
