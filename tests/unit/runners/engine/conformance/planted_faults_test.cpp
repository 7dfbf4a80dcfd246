#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runners/engine/conformance/result_check.hpp"
#include "runners/engine/operators/active_device.hpp"

namespace heteroperf {
namespace {

using enum Element;

/// The type of the table that a fault is planted into.
Element planted = float32;

const KernelTable& right() {
  static const KernelVariant fastest = kernel_variants().front();
  return fastest.kernels(planted);
}

float* floats(void* memory) { return static_cast<float*>(memory); }
c10::BFloat16* shorts(void* memory) { return static_cast<c10::BFloat16*>(memory); }
float number(const void* memory, std::int64_t i) {
  return planted == bfloat16 ? static_cast<float>(static_cast<const c10::BFloat16*>(memory)[i])
                             : static_cast<const float*>(memory)[i];
}

/// Calls f(value, i) on the numbers of a range that have the planted type, element by element.
template <class F>
void each(RowRange r, void* memory, F f) {
  for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) {
    float value = number(memory, i);
    f(value, i);
    planted == bfloat16 ? static_cast<void>(shorts(memory)[i] = value)
                        : static_cast<void>(floats(memory)[i] = value);
  }
}
void spoil_tail(RowRange r, void* memory) {
  const std::int64_t end = r.end * r.columns, tail = end - (end - r.begin * r.columns) % 8;
  each(r, memory, [&](float& value, std::int64_t i) {
    if (i >= tail) value += 1;
  });
}
void towards_zero(RowRange r, void* memory) {
  each(r, memory, [](float& value, std::int64_t) {
    const std::uint32_t last = planted == bfloat16 ? 1u << 16 : 1u;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & last) != 0 && std::isfinite(value)) value = std::bit_cast<float>(bits - last);
  });
}
void swallow(RowRange r, void* memory) {
  each(r, memory, [](float& value, std::int64_t) {
    if (std::isnan(value)) value = 0;
  });
}
float to_half(float value) { return static_cast<float>(static_cast<c10::Half>(value)); }

/// A product whose sums are rounded to fp16 behind every term.
at::Tensor half_summed(const at::Tensor& a, const at::Tensor& b, const at::Tensor& result) {
  if (a.size(1) < 1024) return result;
  const at::Tensor left = a.to(at::kFloat), rows = b.to(at::kFloat);
  at::Tensor sum = at::zeros_like(result, at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t k = 0; k < a.size(1); ++k) {
    const at::Tensor term = at::matmul(left.narrow(1, k, 1), rows.narrow(0, k, 1));
    sum = (sum + term).to(at::kHalf).to(at::kFloat);
  }
  return sum.to(result.scalar_type());
}
/// A norm of rows whose sums are rounded to fp16 behind every term.
void half_summed_norm(RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                      void* mean, void* rstd) {
  if (r.columns < 1024) return right().layer_norm(r, eps, x, w, b, y, mean, rstd);
  const auto n = static_cast<float>(r.columns);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const auto summed = [&](auto term) {
      float sum = 0;
      for (std::int64_t i = 0; i < r.columns; ++i) {
        sum = to_half(sum + term(number(x, row * r.columns + i)));
      }
      return sum / n;
    };
    const float m = mean != nullptr ? summed([](float v) { return v; }) : 0;
    const float variance = summed([&](float v) { return (v - m) * (v - m); });
    const float scale = 1 / std::sqrt(variance + static_cast<float>(eps));
    each({row, row + 1, r.columns}, y, [&](float& value, std::int64_t i) {
      const std::int64_t c = i - row * r.columns;
      value = (number(x, i) - m) * scale * number(w, c) + (b != nullptr ? number(b, c) : 0);
    });
    if (mean != nullptr) floats(mean)[row] = m;
    floats(rstd)[row] = scale;
  }
}

/// Multiplies the numbers of a range of columns.
void scale(RowRange columns, void* memory, float factor) {
  for (std::int64_t i = columns.begin; i < columns.end; ++i) floats(memory)[i] *= factor;
}
constexpr float moved_variance = 1 + 0x1p-10f;

struct Fault {
  const char *kind, *where;
  std::function<void(ActiveDevice&)> plant;
  Element element = float32;
};

/// A kernel that does what `body` does.
template <class Kernel, class Body>
std::function<void(ActiveDevice&)> kernel(Kernel KernelTable::*member, Body body) {
  return [member, body](ActiveDevice& device) {
    device.plant(planted, member, static_cast<Kernel>(body));
  };
}
std::function<void(ActiveDevice&)> product(ActiveDevice::ProductFault fault) {
  return [fault](ActiveDevice& device) { device.plant(fault); };
}
std::function<void(ActiveDevice&)> on(
    ProductOperator wanted,
    std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)> fault) {
  return product([wanted, fault](ProductOperator op, const at::Tensor& a, const at::Tensor& b,
                                 const at::Tensor& result) {
    return op == wanted ? fault(a, b, result) : result;
  });
}

// Ten kinds of faults in four operators each.
const Fault faults[] = {
    {"tail of a vector", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              right().activation(r, kind, x, bias, y);
              spoil_tail(r, y);
            })},
    {"tail of a vector", "add",
     kernel(&KernelTable::add,
            +[](RowRange r, const void* a, const void* table, std::int64_t length, const void* b,
                bool relu, void* y) {
              right().add(r, a, table, length, b, relu, y);
              spoil_tail(r, y);
            })},
    {"tail of a vector", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              spoil_tail(r, y);
            })},
    {"tail of a vector", "cross_entropy_backward",
     kernel(&KernelTable::cross_entropy_backward,
            +[](RowRange r, CrossEntropyTerms terms, const void* logits,
                const std::int64_t* targets, const void* lse, void* gradient) {
              right().cross_entropy_backward(r, terms, logits, targets, lse, gradient);
              spoil_tail(r, gradient);
            })},

    {"fp16 accumulation", "product", on(ProductOperator::product, half_summed)},
    {"fp16 accumulation", "layer_norm", kernel(&KernelTable::layer_norm, half_summed_norm)},
    {"fp16 accumulation", "rms_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              if (mean == nullptr) return half_summed_norm(r, eps, x, w, b, y, mean, rstd);
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
            })},
    {"fp16 accumulation", "embedding_backward",
     kernel(&KernelTable::embedding_backward,
            +[](RowRange columns, std::int64_t rows, std::int64_t width,
                const std::int64_t* indices, const void* dy, void* gradient) {
              if (rows < 1024) {
                return right().embedding_backward(columns, rows, width, indices, dy, gradient);
              }
              for (std::int64_t i = 0; i < rows; ++i) {
                for (std::int64_t c = columns.begin; c < columns.end && indices[i] >= 0; ++c) {
                  float& sum = floats(gradient)[indices[i] * width + c];
                  sum = to_half(sum + number(dy, i * width + c));
                }
              }
            })},

    {"swapped operands", "swiglu",
     kernel(&KernelTable::swiglu,
            +[](RowRange r, const void* gate, const void* up, void* y) {
              right().swiglu(r, up, gate, y);
            })},
    {"swapped operands", "rotary",
     kernel(&KernelTable::rotary,
            +[](RowRange r, RotaryLayout layout, const void* x, const void* cosine,
                const void* sine, void* y) { right().rotary(r, layout, x, sine, cosine, y); })},
    {"swapped operands", "activation_backward",
     kernel(&KernelTable::activation_backward,
            +[](RowRange r, ActivationKind kind, const void* dy, const void* kept, void* dx,
                void* sum) { right().activation_backward(r, kind, kept, dy, dx, sum); })},
    {"swapped operands", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, b != nullptr ? b : w, w, y, mean, rstd);
            })},

    {"gradient without its scale", "cross_entropy_backward",
     kernel(&KernelTable::cross_entropy_backward,
            +[](RowRange r, CrossEntropyTerms terms, const void* logits,
                const std::int64_t* targets, const void* lse, void* gradient) {
              terms.scale = 1;
              right().cross_entropy_backward(r, terms, logits, targets, lse, gradient);
            })},
    {"gradient without its scale", "mean_rows_backward",
     kernel(&KernelTable::mean_rows_backward,
            +[](RowRange samples, std::int64_t pixels, const void* dy, void* dx) {
              right().mean_rows_backward(samples, pixels, dy, dx);
              each({samples.begin * pixels, samples.end * pixels, samples.columns}, dx,
                   [&](float& value, std::int64_t) { value *= static_cast<float>(pixels); });
            })},
    {"gradient without its scale", "swiglu_backward",
     kernel(&KernelTable::swiglu_backward,
            +[](RowRange r, const void* dy, const void* gate, const void* up, void* dgate,
                void* dup) {
              right().swiglu_backward(r, dy, gate, up, dgate, dup);
              std::copy_n(static_cast<const float*>(dy) + r.begin * r.columns,
                          (r.end - r.begin) * r.columns, floats(dup) + r.begin * r.columns);
            })},
    {"gradient without its scale", "dropout",
     kernel(&KernelTable::dropout,
            +[](RowRange r, DropoutKey key, const void* x, void* y) {
              right().dropout(r, key, x, y);
              each(r, y, [&](float& value, std::int64_t) { value *= static_cast<float>(key.keep); });
            })},

    {"window off by one", "max_pool",
     kernel(&KernelTable::max_pool,
            +[](RowRange r, const Window& w, const void* x, void* y, std::uint8_t* taps) {
              Window moved = w;
              moved.padding[0] = std::max<std::int64_t>(0, moved.padding[0] - 1);
              if (w.padding[0] == 0) moved.kernel[0] -= 1;
              right().max_pool(r, moved, x, y, taps);
            })},
    {"window off by one", "max_pool_backward",
     kernel(&KernelTable::max_pool_backward,
            +[](RowRange r, const Window& w, const void* dy, const std::uint8_t* taps, void* dx) {
              Window moved = w;
              moved.padding[1] += 1;
              right().max_pool_backward(r, moved, dy, taps, dx);
            })},
    {"window off by one", "convolution",
     on(ProductOperator::convolution,
        [](const at::Tensor&, const at::Tensor&, const at::Tensor& result) {
          return result.roll(1, 3).contiguous(at::MemoryFormat::ChannelsLast);
        })},
    // Convolutions of float32 gather no windows, but for a way that is chosen by measuring.
    {"window off by one", "im2col",
     kernel(&KernelTable::im2col,
            +[](RowRange r, const Window& w, const void* x, void* columns) {
              Window moved = w;
              moved.padding[1] += 1;
              right().im2col(r, moved, x, columns);
            }),
     bfloat16},

    {"stale workspace", "column_sum",
     kernel(&KernelTable::column_sum,
            +[](RowRange r, const void* x, void* partial) {
              std::vector<float> before(floats(partial), floats(partial) + r.columns);
              right().column_sum(r, x, partial);
              each({0, 1, r.columns}, partial,
                   [&](float& value, std::int64_t i) { value += before[static_cast<std::size_t>(i)]; });
            })},
    {"stale workspace", "moments",
     kernel(&KernelTable::moments,
            +[](RowRange r, const void* x, void* mean, void* deviation) {
              std::vector<float> before(floats(deviation), floats(deviation) + r.columns);
              right().moments(r, x, mean, deviation);
              each({0, 1, r.columns}, deviation,
                   [&](float& value, std::int64_t i) { value += before[static_cast<std::size_t>(i)]; });
            })},
    {"stale workspace", "mean_rows",
     kernel(&KernelTable::mean_rows,
            +[](RowRange r, std::int64_t pixels, const void* x, void* y) {
              std::vector<float> before(floats(y) + r.begin * r.columns,
                                        floats(y) + r.end * r.columns);
              right().mean_rows(r, pixels, x, y);
              each(r, y, [&](float& value, std::int64_t i) {
                value += before[static_cast<std::size_t>(i - r.begin * r.columns)];
              });
            })},
    {"stale workspace", "combine",
     kernel(&KernelTable::combine,
            +[](RowRange columns, std::int64_t blocks, const void* partials, Accumulation,
                void* target) {
              right().combine(columns, blocks, partials, Accumulation::add, target);
            })},

    {"missing row in a sum", "column_sum",
     kernel(&KernelTable::column_sum,
            +[](RowRange r, const void* x, void* partial) {
              right().column_sum({r.begin, std::max(r.begin + 1, r.end - 1), r.columns}, x, partial);
            })},
    {"missing row in a sum", "embedding_backward",
     kernel(&KernelTable::embedding_backward,
            +[](RowRange columns, std::int64_t rows, std::int64_t width,
                const std::int64_t* indices, const void* dy, void* gradient) {
              right().embedding_backward(columns, rows - 1, width, indices, dy, gradient);
            })},
    {"missing row in a sum", "combine",
     kernel(&KernelTable::combine,
            +[](RowRange columns, std::int64_t blocks, const void* partials, Accumulation how,
                void* target) {
              right().combine(columns, std::max<std::int64_t>(1, blocks - 1), partials, how, target);
            })},
    {"missing row in a sum", "moments",
     kernel(&KernelTable::moments,
            +[](RowRange r, const void* x, void* mean, void* deviation) {
              right().moments({r.begin, std::max(r.begin + 1, r.end - 1), r.columns}, x, mean,
                              deviation);
            })},

    {"wrong rounding", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              right().activation(r, kind, x, bias, y);
              towards_zero(r, y);
            })},
    {"wrong rounding", "add",
     kernel(&KernelTable::add,
            +[](RowRange r, const void* a, const void* table, std::int64_t length, const void* b,
                bool relu, void* y) {
              right().add(r, a, table, length, b, relu, y);
              towards_zero(r, y);
            })},
    {"wrong rounding", "multiply",
     kernel(&KernelTable::multiply,
            +[](RowRange r, const void* a, const void* b, void* y) {
              right().multiply(r, a, b, y);
              towards_zero(r, y);
            })},
    {"wrong rounding", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              towards_zero(r, y);
            })},

    {"NaN swallowed", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              right().activation(r, kind, x, bias, y);
              swallow(r, y);
            })},
    {"NaN swallowed", "add",
     kernel(&KernelTable::add,
            +[](RowRange r, const void* a, const void* table, std::int64_t length, const void* b,
                bool relu, void* y) {
              right().add(r, a, table, length, b, relu, y);
              swallow(r, y);
            })},
    {"NaN swallowed", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              swallow(r, y);
            })},
    {"NaN swallowed", "product",
     on(ProductOperator::product,
        [](const at::Tensor&, const at::Tensor&, const at::Tensor& result) {
          return result.nan_to_num(0.0);
        })},

    {"bias twice", "add",
     kernel(&KernelTable::add,
            +[](RowRange r, const void* a, const void* bias, std::int64_t length, const void* b,
                bool relu, void* y) {
              right().add(r, a, bias, length, b, relu, y);
              right().add(r, y, bias, length, nullptr, relu, y);
            })},
    {"bias twice", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              if (bias != nullptr) right().add(r, x, bias, 1, nullptr, false, x);
              right().activation(r, kind, x, bias, y);
            })},
    {"bias twice", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              right().add(r, y, b, 1, nullptr, false, y);
            })},
    {"bias twice", "batch_norm_affine",
     kernel(&KernelTable::batch_norm_affine,
            +[](RowRange c, double eps, const void* mean, const void* variance, const void* weight,
                const void* bias, void* rstd, void* scale, void* shift) {
              right().batch_norm_affine(c, eps, mean, variance, weight, bias, rstd, scale, shift);
              for (std::int64_t i = c.begin; i < c.end; ++i) {
                floats(shift)[i] += static_cast<const float*>(bias)[i];
              }
            })},

    // What only some of the cases show: special values that stand in an output's gradient or in
    // parameters, infinities of both signs, results of one dimension, and those that are missing.
    {"NaN swallowed", "attention",
     on(ProductOperator::attention,
        [](const at::Tensor&, const at::Tensor&, const at::Tensor& result) {
          return result.nan_to_num(0.0);
        })},
    {"NaN swallowed", "rotary",
     kernel(&KernelTable::rotary,
            +[](RowRange r, RotaryLayout layout, const void* x, const void* cosine,
                const void* sine, void* y) {
              right().rotary(r, layout, x, cosine, sine, y);
              swallow(r, y);
            })},
    {"NaN swallowed", "mean_rows_backward",
     kernel(&KernelTable::mean_rows_backward,
            +[](RowRange samples, std::int64_t pixels, const void* dy, void* dx) {
              right().mean_rows_backward(samples, pixels, dy, dx);
              swallow({samples.begin * pixels, samples.end * pixels, samples.columns}, dx);
            })},
    {"NaN swallowed", "layer_norm, its weight",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              std::vector<float> weight(static_cast<const float*>(w),
                                        static_cast<const float*>(w) + r.columns);
              swallow({0, 1, r.columns}, weight.data());
              right().layer_norm(r, eps, x, weight.data(), b, y, mean, rstd);
            })},
    {"sign of an infinity", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              each(r, x, [&](float& value, std::int64_t) {
                if (kind == ActivationKind::relu && std::isinf(value)) value = std::fabs(value);
              });
              right().activation(r, kind, x, bias, y);
            })},
    {"denormal turned into NaN", "activation",
     kernel(&KernelTable::activation,
            +[](RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
              right().activation(r, kind, x, bias, y);
              auto* const values = static_cast<double*>(y);
              for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) {
                if (std::fpclassify(values[i]) == FP_SUBNORMAL) values[i] = std::nan("");
              }
            }),
     float64},
    {"wrong rounding", "combine",
     kernel(&KernelTable::combine,
            +[](RowRange columns, std::int64_t blocks, const void* partials, Accumulation how,
                void* target) {
              right().combine(columns, blocks, partials, how, target);
              towards_zero({columns.begin, columns.end, 1}, target);
            })},
    {"gradient not delivered", "attention",
     on(ProductOperator::attention,
        [](const at::Tensor& a, const at::Tensor&, const at::Tensor& result) {
          const bool backward = result.size(-1) > a.size(-1);
          return backward ? at::Tensor() : result;
        })},
    {"algorithm of a training", "product",
     on(ProductOperator::product,
        [](const at::Tensor&, const at::Tensor&, const at::Tensor& result) {
          return at::globalContext().deterministicAlgorithms() ? result : result * 2;
        })},

    // What a training does beside its operators, and the running statistics.
    {"tail of a vector", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              right().adamw(r, s, w, g, m, v);
              spoil_tail(r, w);
            })},
    {"tail of a vector", "sgd",
     kernel(&KernelTable::sgd,
            +[](RowRange r, const SgdScalars& s, void* w, const void* g, void* b) {
              right().sgd(r, s, w, g, b);
              spoil_tail(r, b);
            })},
    {"tail of a vector", "square_sums",
     kernel(&KernelTable::square_sums,
            +[](RowRange blocks, std::int64_t count, const void* x, double* sums) {
              right().square_sums(blocks, std::max<std::int64_t>(1, count - 1), x, sums);
            })},
    {"missing correction", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              AdamwScalars plain = s;
              plain.root = 1;
              right().adamw(r, plain, w, g, m, v);
            })},
    // The norm itself stays right.
    {"wrong running variance", "combine_moments",
     [](ActiveDevice& device) {
       kernel(&KernelTable::combine_moments,
              +[](RowRange columns, std::int64_t rows, std::int64_t block_rows, const void* means,
                  const void* deviations, void* mean, void* variance) {
                right().combine_moments(columns, rows, block_rows, means, deviations, mean,
                                        variance);
                scale(columns, variance, moved_variance);
              })(device);
       kernel(&KernelTable::batch_norm_affine,
              +[](RowRange c, double eps, const void* mean, const void* variance,
                  const void* weight, const void* bias, void* rstd, void* factor, void* shift) {
                std::vector<float> true_variance(static_cast<const float*>(variance),
                                                 static_cast<const float*>(variance) + c.end);
                scale(c, true_variance.data(), 1 / moved_variance);
                right().batch_norm_affine(c, eps, mean, true_variance.data(), weight, bias, rstd,
                                          factor, shift);
              })(device);
     }},
    {"swapped operands", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              AdamwScalars swapped = s;
              std::swap(swapped.beta1, swapped.beta2);
              right().adamw(r, swapped, w, g, m, v);
            })},
    {"gradient without its scale", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              AdamwScalars unclipped = s;
              unclipped.gradient_scale = 1;
              right().adamw(r, unclipped, w, g, m, v);
            })},
    {"gradient without its scale", "sgd",
     kernel(&KernelTable::sgd,
            +[](RowRange r, const SgdScalars& s, void* w, const void* g, void* b) {
              SgdScalars unclipped = s;
              unclipped.gradient_scale = 1;
              right().sgd(r, unclipped, w, g, b);
            })},
    {"wrong rounding", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              right().adamw(r, s, w, g, m, v);
              towards_zero(r, w);
            })},
    {"wrong rounding", "sgd",
     kernel(&KernelTable::sgd,
            +[](RowRange r, const SgdScalars& s, void* w, const void* g, void* b) {
              right().sgd(r, s, w, g, b);
              towards_zero(r, b);
            })},
    {"NaN swallowed", "adamw",
     kernel(&KernelTable::adamw,
            +[](RowRange r, const AdamwScalars& s, void* w, const void* g, void* m, void* v) {
              right().adamw(r, s, w, g, m, v);
              swallow(r, m);
            })},
    {"NaN swallowed", "square_sums",
     kernel(&KernelTable::square_sums,
            +[](RowRange blocks, std::int64_t count, const void* x, double* sums) {
              right().square_sums(blocks, count, x, sums);
              for (std::int64_t i = blocks.begin; i < blocks.end; ++i) {
                if (std::isnan(sums[i])) sums[i] = 0;
              }
            })},
    {"fp16 accumulation", "square_sums",
     kernel(&KernelTable::square_sums,
            +[](RowRange blocks, std::int64_t count, const void* x, double* sums) {
              right().square_sums(blocks, count, x, sums);
              for (std::int64_t i = blocks.begin; i < blocks.end; ++i) {
                sums[i] = to_half(static_cast<float>(sums[i]));
              }
            })},
    {"fp16 accumulation", "sgd",
     kernel(&KernelTable::sgd,
            +[](RowRange r, const SgdScalars& s, void* w, const void* g, void* b) {
              right().sgd(r, s, w, g, b);
              each(r, b, [](float& value, std::int64_t) { value = to_half(value); });
            })},
};

std::vector<OperatorVerdict> check(ActiveDevice& device, std::uint64_t seed,
                                   Precision precision = Precision::fp32,
                                   bool first_fault = false) {
  const DeviceScope scope(device);
  ConformanceRequest request;
  request.quick = true;
  request.first_fault = first_fault;
  request.seed = seed;
  request.precision = precision;
  return check_operators(request);
}

std::string wrong_ones(const std::vector<OperatorVerdict>& verdicts) {
  std::string text;
  for (const OperatorVerdict& verdict : verdicts) {
    for (const std::string& how : verdict.wrong) text += how + "\n";
  }
  return text;
}

/// A fault of the list and the type of the table that it is planted into.
using PlantedFault = std::pair<std::size_t, Element>;

/// Every fault in its own type; those of rounding, accumulation and NaN of operators in bfloat16
/// too.
std::vector<PlantedFault> planted_faults() {
  constexpr std::size_t operators = 40;
  std::vector<PlantedFault> all;
  for (std::size_t i = 0; i < std::size(faults); ++i) all.emplace_back(i, faults[i].element);
  for (std::size_t i = 0; i < operators; ++i) {
    const std::string kind = faults[i].kind;
    if (kind == "wrong rounding" || kind == "fp16 accumulation" || kind == "NaN swallowed") {
      all.emplace_back(i, bfloat16);
    }
  }
  return all;
}

Precision precision_of(Element element) {
  if (element == float64) return Precision::fp64;
  return element == bfloat16 ? Precision::bf16 : Precision::fp32;
}

class PlantedFaults : public testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaults, AreFound) {
  const auto& [index, element] = GetParam();
  const Fault& fault = faults[index];
  planted = element;
  ActiveDevice device{RankDevice()};
  fault.plant(device);
  EXPECT_NE(wrong_ones(check(device, 1 + index, precision_of(element), true)), "")
      << fault.kind << " in " << fault.where;
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedFaults, testing::ValuesIn(planted_faults()));

static_assert(std::size(faults) == 40 + 9 + 14);

// One rounding of a number just above 1 that lies in the middle between two of a format.
TEST(Conformance, ARoundoffIsTheLargestOfItsFormat) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const double u = roundoff(type), middle = 1 + u;
    const double rounded =
        type == at::kFloat ? static_cast<float>(middle) : static_cast<float>(c10::BFloat16(middle));
    EXPECT_EQ(std::fabs(rounded - middle), u);
    EXPECT_EQ(type == at::kFloat ? static_cast<float>(1 + 2 * u)
                                 : static_cast<float>(c10::BFloat16(1 + 2 * u)),
              1 + 2 * u);
  }
}

// A device that adds its terms in an order that changes from call to call, as atomic additions do.
TEST(Conformance, AResultThatChangesIsNoRepetition) {
  ActiveDevice device{RankDevice()};
  int calls = 0;
  device.plant(
      [&](ProductOperator, const at::Tensor&, const at::Tensor&, const at::Tensor& result) {
        const bool steady = at::globalContext().deterministicAlgorithms();
        return steady || ++calls % 2 == 0 ? result : result * (1 + 0x1p-23);
      });
  for (const OperatorVerdict& verdict : check(device, 5)) {
    const bool multiplies = verdict.name == "linear", adds = verdict.name == "add";
    EXPECT_FALSE(multiplies && verdict.repeatable);
    EXPECT_TRUE(!adds || verdict.repeatable);
  }
}

TEST(Conformance, RightDevicesRaiseNoAlarm) {
  for (const char* name :
       {"cpu", "cpu:exact", "emulated:tf32_products", "emulated:bf16_products",
        "emulated:fp16_products", "emulated:few_operators", "emulated:other_order"}) {
    ActiveDevice device(read_device(name), FallbackRules::parse("allow"));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      EXPECT_EQ(wrong_ones(check(device, 7, precision)), "") << name << to_string(precision);
    }
  }
}

TEST(Conformance, EveryVariantOfTheKernelsIsRight) {
  for (const char* name : {"cpu:base", "cpu:avx2", "cpu:avx512"}) {
    const RankDevice asked = read_device(name);
    if (!has_instructions(asked.kernels)) continue;
    ActiveDevice device(asked);
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
      EXPECT_EQ(wrong_ones(check(device, 11, precision)), "") << name << to_string(precision);
    }
  }
}

}  // namespace
}  // namespace heteroperf
