#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runners/engine/conformance/operator_cases.hpp"
#include "runners/engine/operators/active_device.hpp"

namespace heteroperf {
namespace {

using enum Element;

/// The kernels that a fault is planted into.
const KernelTable& right() {
  static const KernelTable table = kernel_variants().front().kernels(float32);
  return table;
}

float* floats(void* memory) { return static_cast<float*>(memory); }

/// Calls f(value) on the numbers of a range, element by element.
template <class F>
void each(RowRange r, void* memory, F f) {
  float* const values = floats(memory);
  for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) f(values[i], i);
}
void spoil_tail(RowRange r, void* memory) {
  const std::int64_t end = r.end * r.columns, tail = end - (end - r.begin * r.columns) % 8;
  each(r, memory, [&](float& value, std::int64_t i) {
    if (i >= tail) value += 1;
  });
}
void towards_zero(RowRange r, void* memory) {
  each(r, memory, [](float& value, std::int64_t) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 1u) != 0 && std::isfinite(value)) value = std::bit_cast<float>(bits - 1);
  });
}
void swallow(RowRange r, void* memory) {
  each(r, memory, [](float& value, std::int64_t) {
    if (std::isnan(value)) value = 0;
  });
}
float to_half(float value) { return static_cast<float>(static_cast<c10::Half>(value)); }

struct Fault {
  const char *kind, *where;
  std::function<void(ActiveDevice&)> plant;
};

/// A kernel that does what `body` does.
template <class Kernel, class Body>
std::function<void(ActiveDevice&)> kernel(Kernel KernelTable::*member, Body body) {
  return [member, body](ActiveDevice& device) {
    device.plant(float32, member, static_cast<Kernel>(body));
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
at::Tensor half_precise(const at::Tensor& result) { return result.to(at::kHalf).to(at::kFloat); }

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

    {"fp16 accumulation", "product",
     on(ProductOperator::product,
        [](const at::Tensor& a, const at::Tensor&, const at::Tensor& result) {
          return a.size(1) >= 1024 ? half_precise(result) : result;
        })},
    {"fp16 accumulation", "layer_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              if (r.columns < 1024) return;
              each(r, y, [](float& value, std::int64_t) { value = to_half(value); });
            })},
    {"fp16 accumulation", "rms_norm",
     kernel(&KernelTable::layer_norm,
            +[](RowRange r, double eps, const void* x, const void* w, const void* b, void* y,
                void* mean, void* rstd) {
              right().layer_norm(r, eps, x, w, b, y, mean, rstd);
              if (mean != nullptr || r.columns < 1024) return;
              each(r, y, [](float& value, std::int64_t) { value = to_half(value); });
            })},
    {"fp16 accumulation", "embedding_backward",
     kernel(&KernelTable::embedding_backward,
            +[](RowRange columns, std::int64_t rows, std::int64_t width,
                const std::int64_t* indices, const void* dy, void* gradient) {
              if (rows < 1024) {
                return right().embedding_backward(columns, rows, width, indices, dy, gradient);
              }
              const auto* const from = static_cast<const float*>(dy);
              for (std::int64_t i = 0; i < rows; ++i) {
                for (std::int64_t c = columns.begin; c < columns.end && indices[i] >= 0; ++c) {
                  float& sum = floats(gradient)[indices[i] * width + c];
                  sum = to_half(sum + from[i * width + c]);
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
    {"window off by one", "add, rows of a table",
     kernel(&KernelTable::add,
            +[](RowRange r, const void* a, const void* table, std::int64_t length, const void* b,
                bool relu, void* y) {
              right().add(r, a, table, std::max<std::int64_t>(1, length - 1), b, relu, y);
            })},

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
};

std::vector<OperatorVerdict> check(ActiveDevice& device, std::uint64_t seed) {
  const DeviceScope scope(device);
  ConformanceRequest request;
  request.quick = true;
  request.seed = seed;
  return check_operators(request);
}

std::string wrong_ones(const std::vector<OperatorVerdict>& verdicts) {
  std::string text;
  for (const OperatorVerdict& verdict : verdicts) {
    for (const std::string& how : verdict.wrong) text += how + "\n";
  }
  return text;
}

class PlantedFaults : public testing::TestWithParam<std::size_t> {};

TEST_P(PlantedFaults, AreFound) {
  const Fault& fault = faults[GetParam()];
  ActiveDevice device{RankDevice()};
  fault.plant(device);
  EXPECT_NE(wrong_ones(check(device, 1 + GetParam())), "") << fault.kind << " in " << fault.where;
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedFaults, testing::Range(std::size_t{0}, std::size(faults)));

static_assert(std::size(faults) == 40);

TEST(Conformance, RightDevicesRaiseNoAlarm) {
  for (const char* name : {"cpu", "cpu:exact", "emulated:tf32_products", "emulated:bf16_products",
                           "emulated:few_operators", "emulated:other_order"}) {
    ActiveDevice device(read_device(name), FallbackRules::parse("allow"));
    EXPECT_EQ(wrong_ones(check(device, 7)), "") << name;
  }
}

TEST(Conformance, EveryVariantOfTheKernelsIsRight) {
  for (const char* name : {"cpu:base", "cpu:avx2", "cpu:avx512"}) {
    const RankDevice asked = read_device(name);
    if (!has_instructions(asked.kernels)) continue;
    ActiveDevice device(asked);
    EXPECT_EQ(wrong_ones(check(device, 11)), "") << name;
  }
}

}  // namespace
}  // namespace heteroperf
