#pragma once

// Element-wise kernels, and the passes of a linear layer around its product.
#include "runners/engine/kernels/operands.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Calls body with the function of a kind: kernels are compiled for each and do not branch.
template <class Body>
void with_activation(ActivationKind kind, const Body& body) {
  switch (kind) {
    case ActivationKind::relu:
      return body(ReluFunction());
    case ActivationKind::silu:
      return body(SiluFunction());
    case ActivationKind::tanh:
      return body(TanhFunction());
    case ActivationKind::gelu_erf:
      return body(GeluErf());
    case ActivationKind::gelu_tanh:
      return body(GeluTanh());
  }
}

/// The biased x is stored because the backward pass needs it.
template <class T, class Function>
struct ValueOfSum {
  template <class A, class Bias>
  HETEROPERF_KERNEL void operator()(A& x, Bias bias, A& y) const {
    const A sum = x + bias;
    y = Function::value(std::is_same_v<Bias, Nothing> ? x : rounded<T>(sum));
    x = sum;
  }
};
template <class T>
void activation(RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
  with_activation(kind, [&](auto function) {
    const ValueOfSum<T, decltype(function)> f;
    if (bias == nullptr) return map<T>(r, f, Read<T>(x), Absent(), Write<T>(y));
    map<T>(r, f, Update<T>(x), PerColumn<T>(bias), Write<T>(y));
  });
}

/// The column sums are the gradient of a bias.
template <class Function>
struct GradientOf {
  template <class A, class Sum>
  HETEROPERF_KERNEL void operator()(A dy, A kept, A& dx, Sum& sum) const {
    dx = Function::gradient(dy, kept);
    if constexpr (std::is_same_v<Sum, A>) sum += dx;
  }
};
template <class T>
void activation_backward(RowRange r, ActivationKind kind, const void* dy, const void* kept,
                         void* dx, void* column_sum) {
  with_activation(kind, [&](auto function) {
    const GradientOf<decltype(function)> f;
    if (column_sum == nullptr) {
      return map<T>(r, f, Read<T>(dy), Read<T>(kept), Write<T>(dx), Absent());
    }
    sum_columns(r, f, Read<T>(dy), Read<T>(kept), Write<T>(dx), ColumnSum<Kept<T>>(column_sum));
  });
}

template <class T>
void swiglu(RowRange r, const void* gate, const void* up, void* y) {
  using A = Acc<T>;
  const auto f = HETEROPERF_FUNCTION(A g, A u, A & to) { to = SiluFunction::value(g) * u; };
  map<T>(r, f, Read<T>(gate), Read<T>(up), Write<T>(y));
}

/// Both gradients of silu(gate) · up share the logistic function of the gate.
template <class T>
void swiglu_backward(RowRange r, const void* dy, const void* gate, const void* up, void* dgate,
                     void* dup) {
  using A = Acc<T>;
  const auto f = HETEROPERF_FUNCTION(A d, A g, A u, A & dg, A & du) {
    const auto [value, slope] = SiluFunction::at(g);
    dg = d * u * slope;
    du = d * value;
  };
  map<T>(r, f, Read<T>(dy), Read<T>(gate), Read<T>(up), Write<T>(dgate), Write<T>(dup));
}

template <class T>
void multiply(RowRange r, const void* a, const void* b, void* y) {
  using A = Acc<T>;
  const auto f = HETEROPERF_FUNCTION(A u, A v, A & to) { to = u * v; };
  map<T>(r, f, Read<T>(a), Read<T>(b), Write<T>(y));
}

/// y = relu?(x · scale + shift + residual), made in the accumulation type and rounded once. Scale,
/// shift and residual may be Nothing, and y where it takes the place of x.
template <bool with_relu>
struct ScaledSum {
  template <class A, class Scale, class Shift, class Residual, class Y>
  HETEROPERF_KERNEL void operator()(A& x, Scale scale, Shift shift, Residual residual, Y& y) const {
    const A sum = x * scale + shift + residual;
    if constexpr (std::is_same_v<Y, A>) {
      y = with_relu ? ReluFunction::value(sum) : sum;
    } else {
      x = with_relu ? ReluFunction::value(sum) : sum;
    }
  }
};
/// The relu and the residual may be there or not, whatever scale and shift are.
template <class T, class Scale, class Shift>
void scaled_sum(RowRange r, const void* x, Scale scale, Shift shift, const void* residual,
                bool relu, void* y) {
  with_flag(relu, [&](auto with_relu) {
    where_given(Read<T>(residual), [&](auto more) {
      const ScaledSum<decltype(with_relu)::value> f;
      // A bias in place: one array fewer to walk.
      if constexpr (!std::is_same_v<Shift, Absent>) {
        if (x == y) return map<T>(r, f, Update<T>(y), scale, shift, more, Absent());
      }
      map<T>(r, f, Read<T>(x), scale, shift, more, Write<T>(y));
    });
  });
}
template <class T>
void add(RowRange r, const void* a, const void* table, std::int64_t length, const void* b,
         bool relu, void* y) {
  const auto run = [&](auto row) { scaled_sum<T>(r, a, Absent(), row, b, relu, y); };
  if (table == nullptr) return run(Absent());
  length == 1 ? run(PerColumn<T>(table)) : run(TableRow<T>(table, {length}));
}

template <class T>
void column_sum(RowRange r, const void* x, void* partial) {
  using A = Acc<T>;
  const auto f = HETEROPERF_FUNCTION(A v, A & sum) { sum += v; };
  sum_columns(r, f, Read<T>(x), ColumnSum<Kept<T>>(partial));
}

/// Joins the sums of all blocks, of which there are many for few columns, in their order.
template <class T>
void combine(RowRange r, std::int64_t blocks, const void* partials, Accumulation accumulation,
             void* target) {
  const auto run = [&](auto result) {
    fold({0, 1, r.begin, r.end, r.columns}, EvenWalk{{}, blocks, 0}, AddUp(), Unchanged(),
         Read<Kept<T>>(partials), Absent(), result);
  };
  accumulation == Accumulation::add ? run(Added<T>(target)) : run(Write<T>(target));
}

}  // namespace
}  // namespace heteroperf
