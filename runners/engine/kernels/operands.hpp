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

/// Stands for the value of an operand that a call leaves out: a term or factor that is not there.
struct Nothing {};
template <class A>
HETEROPERF_KERNEL A operator+(A a, Nothing) {
  return a;
}
template <class A>
HETEROPERF_KERNEL A operator*(A a, Nothing) {
  return a;
}

// ---------------------------------------------------------------- views of one row

/// The values that a function gets: those in memory, or zeros, to which what is in memory is added
/// at the end where the store adds.
enum class Begins { in_memory, at_zero, at_zero_and_adds };

/// Constants are never stored.
template <class T, Begins begins>
struct RowView {
  T* at;
  HETEROPERF_KERNEL auto load(std::int64_t column) const {
    if constexpr (begins == Begins::in_memory) return widen(at[column]);
    return decltype(widen(*at))();
  }
  template <class V>
  HETEROPERF_KERNEL void store(std::int64_t column, const V& value) const {
    if constexpr (begins == Begins::at_zero_and_adds) {
      at[column] = narrow<T>(widen(at[column]) + value);
    } else if constexpr (!std::is_const_v<T>) {
      at[column] = narrow<T>(value);
    }
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

/// Where the row of a matrix's row r begins, in elements: each in its place,
struct EveryRow {
  HETEROPERF_KERNEL std::int64_t operator()(std::int64_t r, std::int64_t columns) const {
    return r * columns;
  }
};
/// all in one,
struct OneRow {
  HETEROPERF_KERNEL std::int64_t operator()(std::int64_t, std::int64_t) const { return 0; }
};
/// in row r mod `length` of a table,
struct TableRows {
  std::int64_t length;
  HETEROPERF_KERNEL std::int64_t operator()(std::int64_t r, std::int64_t columns) const {
    return r % length * columns;
  }
};
/// or in the row that an index names, the first where it is negative.
struct IndexedRows {
  const std::int64_t* indices;
  HETEROPERF_KERNEL std::int64_t operator()(std::int64_t r, std::int64_t columns) const {
    return (indices[r] < 0 ? 0 : indices[r]) * columns;
  }
};

/// An operand in memory. It is `dense` where it has a value for every element, all of them in one
/// piece, and `per_block` where it has a row for every block of rows; the function adds to a `sum`.
/// `aligned` says that whole packs of 16 bytes may be loaded.
template <class T, class Rows = EveryRow, Begins begins = Begins::in_memory>
struct Operand {
  static constexpr bool dense = std::is_same_v<Rows, EveryRow>, per_block = false, sum = false;
  T* at;
  Rows rows;
  HETEROPERF_KERNEL explicit Operand(const void* data, Rows of = {})
      : at(const_cast<T*>(as<T>(data))), rows(of) {}
  HETEROPERF_KERNEL RowView<T, begins> row(std::int64_t r, std::int64_t columns) const {
    return {at + rows(r, columns)};
  }
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }
};
template <class T>
using Read = Operand<const T>;
template <class T>
using Write = Operand<T, EveryRow, Begins::at_zero>;
template <class T>
using Update = Operand<T>;
template <class T>
using Added = Operand<T, EveryRow, Begins::at_zero_and_adds>;
template <class T>
using PerColumn = Operand<const T, OneRow>;
template <class T>
using TableRow = Operand<const T, TableRows>;

/// The sum over the rows of a block, one per column. Divided by the block's rows at the end where
/// `is_mean` is set.
template <class T, bool is_mean = false>
struct ColumnSum : Operand<T> {
  static constexpr bool per_block = true, sum = true, mean = is_mean;
  using Operand<T>::Operand;
};
/// The value that a ColumnSum gave for the same block.
template <class T>
struct SumOfBlock : Read<T> {
  static constexpr bool per_block = true;
  using Read<T>::Read;
};
/// An operand that is not loaded column by column.
struct ComputedOperand {
  static constexpr bool dense = true, per_block = false, sum = false;
  bool aligned() const { return true; }
};
/// One value per row.
template <class T>
struct PerRow : ComputedOperand {
  static constexpr bool dense = false;
  const T* at;
  HETEROPERF_KERNEL explicit PerRow(const void* data) : at(as<T>(data)) {}
  HETEROPERF_KERNEL auto row(std::int64_t r, std::int64_t) const {
    return ValueView<decltype(widen(*at))>{widen(at[r])};
  }
};
/// An operand that this call does not have.
struct Absent : ComputedOperand {
  HETEROPERF_KERNEL ValueView<Nothing> row(std::int64_t, std::int64_t) const { return {}; }
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
/// Visits `count` rows from row · apart on. The step is the number of those before.
struct EvenWalk : WalkByRow {
  static constexpr bool joins = true;
  std::int64_t count, apart;
  template <class Visit>
  HETEROPERF_KERNEL void operator()(std::int64_t row, const Visit& visit) const {
    for (std::int64_t i = 0; i < count; ++i) visit(row * apart + i, i);
  }
};
/// Adds up the values of a walk.
struct AddUp {
  template <class A, class Step>
  HETEROPERF_KERNEL void operator()(A value, Nothing, Step, A& sum) const {
    sum += value;
  }
};
/// The fold of one element; see host_skeletons.hpp.
template <class Walk, class Add, class Finish, class One, class Two, class... Results>
HETEROPERF_THREAD void fold_element(std::int64_t row, std::int64_t c, std::int64_t columns,
                                    const Walk& walk, const Add& add, const Finish& finish, One one,
                                    Two two, Results... results) {
  [&](auto... values) {
    walk(walk.place(row), [&](std::int64_t other, auto step) {
      add(one.row(other, columns).load(c), two.row(other, columns).load(c), step, values...);
    });
    finish(values...);
    (results.row(row, columns).store(c, values), ...);
  }(results.row(row, columns).load(c)...);
}
/// Leaves the results of a fold as they are.
struct Unchanged {
  template <class... R>
  HETEROPERF_KERNEL void operator()(R&...) const {}
};

// ---------------------------------------------------------------- what skeletons share

/// One element: loads a value per operand, calls the function, and stores.
template <class F, class... Views>
HETEROPERF_THREAD void apply(const F& f, std::int64_t column, Views... views) {
  [&](auto... values) HETEROPERF_INLINED {
    f(values...);
    (views.store(column, values), ...);
  }(views.load(column)...);
}

/// The part of a column that one thread sums: every `step`th of a block's `rows` rows.
struct ColumnPart {
  std::int64_t first, last, step, column, columns, block, rows;
};
/// f on these elements. The values of sums begin at zero and pass from row to row; join(value)
/// gives those of all threads to the one that `keeps` them.
template <class F, class Join, class... Operands>
HETEROPERF_THREAD void sum_column(const ColumnPart& p, bool keeps, const F& f, const Join& join,
                                  Operands... operands) {
  [&](auto... values) {
    const auto view = [&](const auto& operand, std::int64_t row) {
      return operand.row(std::remove_cvref_t<decltype(operand)>::per_block ? p.block : row,
                         p.columns);
    };
    for (std::int64_t row = p.first; row < p.last; row += p.step) {
      ((Operands::sum ? void() : void(values = view(operands, row).load(p.column))), ...);
      f(values...);
      ((Operands::sum ? void() : view(operands, row).store(p.column, values)), ...);
    }
    const auto finish = [&](const auto& operand, auto value) {
      using O = std::remove_cvref_t<decltype(operand)>;
      if constexpr (O::sum) {
        value = join(value);
        if (O::mean) value /= static_cast<decltype(value)>(p.rows);
        if (keeps) view(operand, 0).store(p.column, value);
      }
    };
    (finish(operands, values), ...);
  }(decltype(operands.row(0, 0).load(0))()...);
}

/// Two sums over a row, of one pass.
template <class A>
struct TwoSums {
  A first, second;
};
/// One row, worked on by Threads: by one, or by all of a block on a device.
template <class Threads>
struct RowOf : Threads {
  std::int64_t index, columns;

  /// add(column, first, second) adds to either sum.
  template <class A, class Add>
  HETEROPERF_THREAD TwoSums<A> sums(Add add) const {
    A first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (std::int64_t c = Threads::first(); c < columns; c += Threads::step()) {
      add(c, first, second);
    }
    const auto plus = [](A a, A b) { return a + b; };
    first = Threads::join(first, plus);
    return {first, Threads::join(second, plus)};
  }
  /// Σ term(column).
  template <class A, class Term>
  HETEROPERF_THREAD A sum(Term term) const {
    return sums<A>([&](std::int64_t c, A& to, A&) HETEROPERF_INLINED { to += term(c); }).first;
  }
  /// The largest of value(column). A NaN on the left stays.
  template <class A, class Value>
  HETEROPERF_THREAD A largest(Value value) const {
    A top = value(0);
#pragma omp simd reduction(max : top)
    for (std::int64_t c = Threads::first(); c < columns; c += Threads::step()) {
      top = value(c) > top ? value(c) : top;
    }
    return Threads::join(top, [](A a, A b) { return b > a ? b : a; });
  }
  /// action(column) for columns [begin, end), or all.
  template <class Action>
  HETEROPERF_THREAD void each(std::int64_t begin, std::int64_t end, Action action) const {
#pragma omp simd
    for (std::int64_t c = begin + Threads::first(); c < end; c += Threads::step()) action(c);
  }
  template <class Action>
  HETEROPERF_THREAD void each(Action action) const {
    each(0, columns, action);
  }
  /// A row of a matrix of this width.
  template <class T>
  HETEROPERF_THREAD T* of(T* matrix) const {
    return matrix + index * columns;
  }
};
/// The one thread of the host.
struct OneThread {
  static constexpr std::int64_t first() { return 0; }
  static constexpr std::int64_t step() { return 1; }
  template <class A, class Join>
  HETEROPERF_THREAD static A join(A value, Join) {
    return value;
  }
  /// Until all that works on the row has come here.
  HETEROPERF_THREAD static void wait() {}
  /// True for the thread that writes what is one per row.
  HETEROPERF_THREAD static bool leads() { return true; }
  template <class T>
  HETEROPERF_THREAD static void copy(const T* from, T* to, std::int64_t count) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  }
  /// Σ term(i) of i below `count`. Sixteen partial sums fill vector registers, in one order for all
  /// instruction sets.
  template <class A, class Term>
  HETEROPERF_THREAD static A lane_sum(std::int64_t count, Term term) {
    constexpr std::int64_t lanes = 16;
    A partial[lanes] = {}, total = 0;
    each_of(count / lanes, lanes, [&](std::int64_t group, std::int64_t lane) HETEROPERF_INLINED {
      partial[lane] += term(group * lanes + lane);
    });
    for (std::int64_t i = count / lanes * lanes; i < count; ++i) partial[0] += term(i);
    for (const A sum : partial) total += sum;
    return total;
  }
  /// action(group, column) for `count` columns of all groups.
  template <class Action>
  HETEROPERF_THREAD static void each_of(std::int64_t groups, std::int64_t count, Action action) {
    for (std::int64_t group = 0; group < groups; ++group) {
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) action(group, c);
    }
  }
};
/// Keeps what is one per row.
template <class T, class Row, class A>
HETEROPERF_THREAD void keep_of_row(const Row& row, void* to, A value) {
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
