// Every kernel outside the products against its roofline: one thread, float32, operands of 64 MiB,
// so that all comes from memory, as it mostly does in a training. The rate counts each operand once
// for reading and once for writing. `memcpy` and `read` are what the memory itself gives; a kernel
// far below them is bound by its arithmetic, which the softmax rows, whose scores stay in a cache,
// show alone.
#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t elements = std::int64_t{1} << 24;  // of each operand

/// Operands that kernels read and write in turn, and rows' targets and statistics beside them.
struct Operands {
  static Operands &shared() {
    static Operands operands;
    return operands;
  }
  Operands() {
    for (auto &values : matrices) values.assign(elements, 0.5F);
    // A relu and a largest element need something to choose from.
    for (std::size_t i = 0; i < matrices[0].size(); i += 2) matrices[0][i] = -0.25F;
    for (auto &values : vectors) values.assign(elements / 64, 0.75F);
    indices.resize(elements / 64);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      indices[i] = static_cast<std::int64_t>(i * 7 % 256);
    }
  }
  std::vector<float> matrices[4], vectors[4];
  std::vector<float> partials = std::vector<float>(4096);  ///< sums that kernels write
  std::vector<std::int64_t> indices;
};

/// A kernel on rows of so many columns. `bytes` are those that an element needs to move.
struct Case {
  std::string name;
  std::int64_t columns;
  double bytes;
  std::function<void(RowRange)> run;
};

std::vector<Case> memory_bound() {
  Operands &o = Operands::shared();
  float *const a = o.matrices[0].data(), *const b = o.matrices[1].data(),
               *const c = o.matrices[2].data(), *const d = o.matrices[3].data();
  float *const u = o.vectors[0].data(), *const v = o.vectors[1].data(),
               *const w = o.vectors[2].data(), *const x = o.vectors[3].data();
  float *const sum = o.partials.data(), *const other_sum = sum + 2048;
  const std::int64_t *const indices = o.indices.data();
  const KernelTable &k = kernel_variants().front().kernels(Element::float32);
  static const Window window{64, {32, 32}, {16, 16}, {3, 3}, {2, 2}, {1, 1}};
  static std::vector<std::uint8_t> taps(elements);
  const auto activation = ActivationKind::gelu_tanh;
  const auto overwrite = Accumulation::overwrite;
  return {
      {"memcpy", 1024, 8,
       [=](RowRange r) { std::memcpy(b, a, r.end * r.columns * sizeof(float)); }},
      {"read (column_sum)", 1024, 4, [=, &k](RowRange r) { k.column_sum(r, a, sum); }},
      {"activation, gelu", 1024, 8,
       [=, &k](RowRange r) { k.activation(r, activation, a, nullptr, b); }},
      {"activation, bias, gelu", 1024, 12,
       [=, &k](RowRange r) { k.activation(r, activation, a, u, b); }},
      {"activation_backward, gelu", 1024, 12,
       [=, &k](RowRange r) { k.activation_backward(r, activation, b, a, c, sum); }},
      {"swiglu", 1024, 12, [=, &k](RowRange r) { k.swiglu(r, a, b, c); }},
      {"swiglu_backward", 1024, 20, [=, &k](RowRange r) { k.swiglu_backward(r, a, b, c, d, c); }},
      {"add, relu", 256, 12, [=, &k](RowRange r) { k.add(r, a, nullptr, 1, b, true, c); }},
      {"add_bias, residual", 256, 12, [=, &k](RowRange r) { k.add(r, c, u, 1, b, false, c); }},
      {"layer_norm", 256, 8, [=, &k](RowRange r) { k.layer_norm(r, 1e-5, a, u, v, b, w, x); }},
      {"layer_norm_backward, added", 256, 16,
       [=, &k](RowRange r) {
         k.layer_norm_backward(r, b, a, u, w, x, Accumulation::add, c, sum, other_sum);
       }},
      {"rms_norm", 256, 8,
       [=, &k](RowRange r) { k.layer_norm(r, 1e-5, a, u, nullptr, b, nullptr, w); }},
      {"batch_norm: moments", 64, 4, [=, &k](RowRange r) { k.moments(r, a, sum, other_sum); }},
      {"batch_norm: scale_shift, relu", 64, 8,
       [=, &k](RowRange r) { k.scale_shift(r, a, u, v, true, nullptr, b); }},
      {"batch_norm: scale_shift, residual", 64, 12,
       [=, &k](RowRange r) { k.scale_shift(r, a, u, v, true, c, b); }},
      {"batch_norm: sums of backward", 64, 8,
       [=, &k](RowRange r) { k.batch_norm_sums(r, b, a, nullptr, u, v, w, x, sum, other_sum); }},
      {"batch_norm: backward", 64, 12,
       [=, &k](RowRange r) {
         k.batch_norm_backward(r, b, a, nullptr, u, v, w, x, u, v, c, nullptr);
       }},
      {"cross_entropy", 256, 4, [=, &k](RowRange r) { k.cross_entropy(r, {}, a, indices, u, v); }},
      {"cross_entropy_backward", 256, 8,
       [=, &k](RowRange r) { k.cross_entropy_backward(r, {}, a, indices, v, c); }},
      {"embedding", 256, 8, [=, &k](RowRange r) { k.embedding(r, indices, a, b, 128, c); }},
      {"embedding_backward", 256, 4,
       [=, &k](RowRange r) {
         k.embedding_backward({0, r.columns, r.columns}, r.end, r.columns, indices, b, c);
       }},
      {"combine, of a batch", 256, 4,
       [=, &k](RowRange r) {
         k.combine({0, 128 * r.columns, 128 * r.columns}, r.end / 128, b, overwrite, c);
       }},
      {"max_pool", 64, 4 + (4 + 1) / 4.0,
       [=, &k](RowRange r) {
         k.max_pool({0, r.end / 4, r.columns}, window, a, b, taps.data());
       }},
      {"max_pool_backward", 64, 4 + (4 + 1) / 4.0,
       [=, &k](RowRange r) {
         k.max_pool_backward({0, r.end / 1024, r.columns}, window, b, taps.data(), c);
       }},
      {"adamw", 1024, 28, [=, &k](RowRange r) { k.adamw(r, {}, a, b, c, d); }},
      {"sgd with momentum", 1024, 20, [=, &k](RowRange r) { k.sgd(r, {}, a, b, c); }},
      {"sum of squares", 1024, 4,
       [=, &k](RowRange r) {
         static double squares;
         k.square_sums({0, 1, r.end * r.columns}, r.end * r.columns, a, &squares);
       }},
  };
}

/// Softmax of attention's blocks of 64 queries and 128 keys, as own_attention.cpp makes them.
std::vector<Case> in_cache() {
  Operands &o = Operands::shared();
  float *const scores = o.matrices[1].data(), *const gradients = o.matrices[2].data(),
               *const sums = o.vectors[0].data(), *const rows = o.vectors[1].data();
  const ProductKernels &k = kernel_variants().front().products();
  static const ScoreRows block{0, 64, 128, 128, false, 0.1F, 0};
  return {
      {"softmax_rows", 128, 8, [=, &k](RowRange) { k.softmax_rows(block, scores, sums); }},
      {"softmax_again", 128, 8, [=, &k](RowRange) { k.softmax_again(block, scores, sums); }},
      {"softmax_backward", 128, 12,
       [=, &k](RowRange) { k.softmax_backward(block, scores, gradients, rows, rows, 64, 64); }},
  };
}

/// One element, by the kernel alone and through the device layer: what the layer costs a call.
void add_device_layer() {
  static const at::Tensor a = at::full({1}, 0.5F), b = at::full({1}, 0.25F),
                          y = at::full({1}, 0.0F);
  static const KernelTable &k = active_device().kernels(Element::float32, false);
  benchmark::RegisterBenchmark("one element: kernel alone", [](benchmark::State &state) {
    for (auto _ : state)
      k.add({0, 1, 1}, a.data_ptr(), nullptr, 1, b.data_ptr(), false, y.data_ptr());
  });
  benchmark::RegisterBenchmark("one element: device layer", [](benchmark::State &state) {
    for (auto _ : state) run_kernel(&KernelTable::add, elements_of(y), a, nullptr, 1, b, false, y);
  });
}

void add(const Case &subject, std::int64_t count) {
  benchmark::RegisterBenchmark(subject.name.c_str(), [subject, count](benchmark::State &state) {
    for (auto _ : state) subject.run({0, count / subject.columns, subject.columns});
    const auto moved = static_cast<double>(state.iterations() * count) * subject.bytes;
    state.counters["bytes"] = benchmark::Counter(moved, benchmark::Counter::kIsRate);
  })->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char **argv) {
  using namespace heteroperf;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add_device_layer();
  for (const Case &subject : memory_bound()) add(subject, elements);
  for (const Case &subject : in_cache()) add(subject, 64 * 128);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
