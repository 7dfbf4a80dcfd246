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

template <class Function>
struct ValueOf {
  template <class A>
  HETEROPERF_KERNEL void operator()(A x, A& y) const {
    y = Function::value(x);
  }
};
/// The biased x is stored because the backward pass needs it.
template <class T, class Function>
struct ValueOfSum {
  template <class A>
  HETEROPERF_KERNEL void operator()(A& x, A bias, A& y) const {
    x = rounded<T>(x + bias);
    y = Function::value(x);
  }
};
template <class T>
void activation(RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
  with_activation(kind, [&](auto function) {
    using Function = decltype(function);
    if (bias == nullptr) return map<T>(r, ValueOf<Function>(), Read<T>(x), Write<T>(y));
    map<T>(r, ValueOfSum<T, Function>(), Update<T>(x), PerColumn<T>(bias), Write<T>(y));
  });
}

/// The column sums are the gradient of a bias.
template <class Function>
struct GradientOf {
  template <class A>
  HETEROPERF_KERNEL void operator()(A dy, A kept, A& dx) const {
    dx = Function::gradient(dy, kept);
  }
  template <class A>
  HETEROPERF_KERNEL void operator()(A dy, A kept, A& dx, A& sum) const {
    dx = Function::gradient(dy, kept);
    sum += dx;
  }
};
template <class T>
void activation_backward(RowRange r, ActivationKind kind, const void* dy, const void* kept,
                         void* dx, void* column_sum) {
  with_activation(kind, [&](auto function) {
    const GradientOf<decltype(function)> f;
    if (column_sum == nullptr) return map<T>(r, f, Read<T>(dy), Read<T>(kept), Write<T>(dx));
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

/// The sum is made in the accumulation type and rounded once.
template <class T>
void add(RowRange r, const void* a, const void* b, bool with_relu, void* y) {
  using A = Acc<T>;
  const auto sum = HETEROPERF_FUNCTION(A u, A v, A & to) { to = u + v; };
  const auto relu = HETEROPERF_FUNCTION(A u, A v, A & to) { to = ReluFunction::value(u + v); };
  if (with_relu) return map<T>(r, relu, Read<T>(a), Read<T>(b), Write<T>(y));
  map<T>(r, sum, Read<T>(a), Read<T>(b), Write<T>(y));
}

/// Bias and residual, either of which may be Nothing.
struct AddBoth {
  template <class A, class Bias, class Residual>
  HETEROPERF_KERNEL void operator()(A& x, Bias bias, Residual residual) const {
    x = plus(plus(x, bias), residual);
  }
};
template <class T>
void add_bias(RowRange r, void* x, const void* bias, const void* residual) {
  if (bias == nullptr && residual == nullptr) return;
  where_given(PerColumn<T>(bias), [&](auto column) {
    where_given(Read<T>(residual),
                [&](auto more) { map<T>(r, AddBoth(), Update<T>(x), column, more); });
  });
}

template <class T>
void column_sum(RowRange r, const void* x, void* partial) {
  using A = Acc<T>;
  const auto f = HETEROPERF_FUNCTION(A v, A & sum) { sum += v; };
  sum_columns(r, f, Read<T>(x), ColumnSum<Kept<T>>(partial));
}

/// Joins the sums of all blocks, of which there are many for few columns, in their order.
struct BlockWalk : EvenWalk {
  static constexpr bool joins = true;
};
template <class T>
void combine(RowRange r, std::int64_t blocks, const void* partials, Accumulation accumulation,
             void* target) {
  fold({0, 1, r.begin, r.end, r.columns}, BlockWalk{{{}, blocks, 0, 1}}, AddUp(), Unchanged(),
       Read<Kept<T>>(partials), Absent(), Added<T>(target, accumulation));
}

}  // namespace
}  // namespace heteroperf
