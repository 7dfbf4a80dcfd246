// The fastest product on a device. LibTorch reaches several libraries, and which of them is fast
// depends on the processor: on some its BLAS multiplies at less than half of the rate of oneDNN,
// which plain products never reach. So every way is tried where it runs, for a moment, those of the
// operators among them, and the winner is what a measured peak repeats. The rate of a GPU's memory
// is that of its fastest copy.
#include "runners/engine/probe/peak_rate.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/load_cuda.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/operators/product.hpp"

namespace heteroperf {
namespace {

using ProductCall = std::function<void()>;

constexpr const char* mm_way = "aten::mm";
constexpr double shortest_call_s = 1e-9;  // that a clock can tell

/// {rows, inner} · {inner, columns}.
struct MatrixExtents {
  std::int64_t rows, inner, columns;
  double operations() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
};

/// A convolution of 3x3 that keeps the number of channels.
struct ConvolutionShape {
  std::int64_t images, channels, extent;  ///< extent of the output
};
constexpr std::int64_t taps = 3;  // on each side of the kernel

/// The product that the operators use.
ProductCall prepare_mm(const MatrixExtents& shape, const at::TensorOptions& options) {
  return [a = at::full({shape.rows, shape.inner}, 0.5, options),
          b = at::full({shape.inner, shape.columns}, 0.25, options),
          product = at::empty({shape.rows, shape.columns}, options)]() mutable {
    at::mm_out(product, a, b);
  };
}

/// A product with a bias, which some libraries fuse.
ProductCall prepare_addmm(const MatrixExtents& shape, const at::TensorOptions& options) {
  return [a = at::full({shape.rows, shape.inner}, 0.5, options),
          b = at::full({shape.inner, shape.columns}, 0.25, options),
          bias = at::full({shape.columns}, 1.0, options),
          product = at::empty({shape.rows, shape.columns}, options)]() mutable {
    at::addmm_out(product, bias, a, b);
  };
}

/// oneDNN's product has no header: it is looked up by its name, called with a stack of values and
/// left out where this LibTorch declares it in another way. The weight is {columns, inner}.
ProductCall prepare_linear(const MatrixExtents& shape, const at::TensorOptions& options) {
  const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  TORCH_CHECK(handle && handle->schema().arguments().size() == 6, "no such operator");
  const auto scalars = handle->schema().arguments()[4].type()->cast<c10::ListType>();
  TORCH_CHECK(scalars, "another operator of this name");
  return [product = *handle, element = scalars->getElementType(),
          x = at::full({shape.rows, shape.inner}, 0.5, options),
          weight = at::full({shape.columns, shape.inner}, 0.25, options)] {
    const c10::impl::GenericList no_scalars(element);
    torch::jit::Stack stack{x, weight, c10::IValue(), "none", no_scalars, c10::IValue()};
    product.callBoxed(stack);
  };
}

/// A product of the operators by one of their ways.
template <ProductWay way>
ProductCall prepare_product(const MatrixExtents& shape, const at::TensorOptions& options) {
  TORCH_CHECK(c10::typeMetaToScalarType(options.dtype()) == at::kFloat && has_product_way(way),
              "no such product");
  return [a = at::full({shape.rows, shape.inner}, 0.5, options),
          b = at::full({shape.inner, shape.columns}, 0.25, options),
          out = at::empty({shape.rows, shape.columns}, options)] {
    product_by(way, out, a, b, Accumulation::overwrite);
  };
}

/// Channels are the innermost extent, as oneDNN likes them.
ProductCall prepare_convolution(const ConvolutionShape& shape, const at::TensorOptions& options) {
  const std::int64_t in = shape.extent + taps - 1;
  const auto innermost = at::MemoryFormat::ChannelsLast;
  return [x = at::full({shape.images, shape.channels, in, in}, 0.5, options).contiguous(innermost),
          weight = at::full({shape.channels, shape.channels, taps, taps}, 0.25, options)
                       .contiguous(innermost)] {
    at::convolution(x, weight, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
  };
}

/// A way to multiply, of the operators or beside theirs.
struct NamedProduct {
  const char* name;
  ProductCall (*prepare)(const MatrixExtents&, const at::TensorOptions&);
};
constexpr std::array<NamedProduct, 5> ways{{{mm_way, prepare_mm},
                                            {"aten::addmm", prepare_addmm},
                                            {"mkldnn::_linear_pointwise", prepare_linear},
                                            {"onednn", prepare_product<ProductWay::onednn>},
                                            {"own", prepare_product<ProductWay::own>}}};

ProductTrial product_trial(const NamedProduct& way, const MatrixExtents& shape,
                           const at::TensorOptions& options) {
  return {way.name, fmt::format("{}x{}x{}", shape.rows, shape.inner, shape.columns),
          shape.operations(), [way, shape, options] { return way.prepare(shape, options); }};
}

ProductTrial convolution_trial(const ConvolutionShape& shape, const at::TensorOptions& options) {
  const std::int64_t outputs = shape.images * shape.channels * shape.extent * shape.extent;
  return {"aten::convolution",
          fmt::format("{} images {}x{}x{}, {}x{}", shape.images, shape.channels, shape.extent,
                      shape.extent, taps, taps),
          2.0 * static_cast<double>(outputs) * static_cast<double>(shape.channels * taps * taps),
          [shape, options] { return prepare_convolution(shape, options); }};
}

/// Nothing where this LibTorch or this processor lacks the way. The first call is part of it: it
/// may have to make its kernel.
std::optional<ProductCall> prepared(const ProductTrial& trial) {
  try {
    ProductCall multiply = trial.prepare();
    multiply();
    return multiply;
  } catch (const std::exception&) {  // LibTorch's, or a library's own
    if (trial.way == mm_way) throw;
    return std::nullopt;
  }
}

/// Repeats a product until `end_s` and gives the time of the fastest call.
double shortest_call(const ProductCall& multiply, double end_s, const SecondsClock& clock) {
  double shortest_s = 0, begin_s = clock();
  do {
    multiply();
    const double now_s = clock();
    const double call_s = std::max(shortest_call_s, now_s - begin_s);
    shortest_s = shortest_s > 0 ? std::min(shortest_s, call_s) : call_s;
    begin_s = now_s;
  } while (begin_s < end_s);
  return shortest_s;
}

}  // namespace

std::vector<ProductTrial> host_products(at::ScalarType type, int threads) {
  const auto options = at::TensorOptions().dtype(type);
  const auto grown = [scale = std::cbrt(static_cast<double>(threads))](std::int64_t extent) {
    constexpr std::int64_t step = 64;
    return step * std::llround(scale * static_cast<double>(extent / step));
  };
  constexpr std::array<MatrixExtents, 3> shapes{
      {{512, 512, 512}, {2048, 256, 768}, {1024, 1024, 1024}}};
  constexpr std::array<ConvolutionShape, 3> convolutions{{{8, 64, 16}, {8, 128, 16}, {8, 256, 8}}};
  std::vector<ProductTrial> trials;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const MatrixExtents shape{grown(shapes[i].rows), grown(shapes[i].inner),
                              grown(shapes[i].columns)};
    for (const NamedProduct& way : ways) trials.push_back(product_trial(way, shape, options));
    ConvolutionShape convolution = convolutions[i];
    convolution.images *= threads;
    trials.push_back(convolution_trial(convolution, options));
  }
  return trials;
}

FastestProduct fastest_of(const std::vector<ProductTrial>& trials, double seconds,
                          const SecondsClock& clock) {
  FastestProduct fastest;
  const double end_s = clock() + seconds;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const double begin_s = clock();
    if (i > 0 && begin_s >= end_s) break;
    const ProductTrial& trial = trials[i];
    const std::optional<ProductCall> multiply = prepared(trial);
    if (!multiply) continue;
    const double share_s = (end_s - begin_s) / static_cast<double>(trials.size() - i);
    const double rate = trial.operations / shortest_call(*multiply, begin_s + share_s, clock);
    if (std::ranges::find(fastest.tried, trial.way) == fastest.tried.end()) {
      fastest.tried.push_back(trial.way);
    }
    if (trial.way == mm_way) fastest.mm_ops_per_second = std::max(fastest.mm_ops_per_second, rate);
    if (rate <= fastest.ops_per_second) continue;
    fastest.ops_per_second = rate;
    fastest.name = trial.way + " " + trial.shape;
    fastest.operations = trial.operations;
    fastest.multiply = *multiply;
  }
  HETEROPERF_ENSURE(fastest.multiply);
  return fastest;
}

FastestProduct find_fastest_product(Precision precision, int threads, double seconds) {
  use_threads(threads);
  // From the pool, as in training: a product that allocates its result does not fault it in anew.
  const RankMemory memory;
  const auto guarded = [memory](const auto& work) {
    const MemoryScope charged(memory);
    const c10::InferenceMode no_tape;
    return work();
  };
  FastestProduct fastest = guarded([&] {
    return fastest_of(host_products(scalar_type(precision), threads), seconds, monotonic_s);
  });
  fastest.multiply = [guarded, multiply = std::move(fastest.multiply)] { guarded(multiply); };
  return fastest;
}

FastestProduct find_fastest_cuda_product(Precision precision, int gpu, double seconds) {
  const c10::InferenceMode no_tape;
  Accelerator& device = use_cuda(gpu);
  const auto options = at::TensorOptions().dtype(scalar_type(precision)).device(cuda_device(gpu));
  constexpr std::array<MatrixExtents, 3> shapes{
      {{4096, 4096, 4096}, {8192, 4096, 8192}, {8192, 8192, 8192}}};
  const auto until_done = [&](const NamedProduct& way, const MatrixExtents& shape) {
    ProductTrial trial = product_trial(way, shape, options);
    trial.prepare = [prepare = trial.prepare, &device]() -> ProductCall {
      return [multiply = prepare(), &device] {
        const c10::InferenceMode untaped;
        multiply();
        device.wait();
      };
    };
    return trial;
  };
  std::vector<ProductTrial> trials;
  for (const MatrixExtents& shape : shapes) {
    for (const NamedProduct& way : {ways[0], ways[1]}) trials.push_back(until_done(way, shape));
  }
  // The libraries' first call, which sets them up, is no part of the seconds.
  prepared(until_done(ways[0], {64, 64, 64}));
  return fastest_of(trials, seconds, monotonic_s);
}

double fastest_copy(const at::TensorOptions& options, std::uint64_t bytes, double seconds,
                    const std::function<void()>& wait, const SecondsClock& clock) {
  const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
  const at::Tensor from = at::full({elements}, 0.5, options.dtype(at::kFloat));
  const at::Tensor to = at::empty({elements}, from.options());
  const auto copy = [&] {
    to.copy_(from);
    wait();
  };
  copy();  // touches the memory
  return 2.0 * static_cast<double>(from.nbytes()) / shortest_call(copy, clock() + seconds, clock);
}

// Tensors far beyond the caches, whose copy takes far longer than its launch.
double measure_cuda_memory(int gpu, double seconds) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30, least_share = 8;
  const c10::InferenceMode no_tape;
  Accelerator& device = use_cuda(gpu);
  return fastest_copy(
      at::TensorOptions().device(cuda_device(gpu)),
      std::min(most_bytes, device.properties(gpu).memory_bytes / least_share), seconds,
      [&] { device.wait(); }, monotonic_s);
}

}  // namespace heteroperf
