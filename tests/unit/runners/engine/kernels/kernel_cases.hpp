#pragma once

#include <array>
#include <cmath>

#include "tests/unit/runners/engine/kernels/kernel_bench.hpp"

namespace heteroperf {
namespace {

using RunKernel = void (*)(Bench&, std::int64_t rows, std::int64_t columns);
struct KernelCase {
  const char* name;
  RunKernel run;
};

template <auto member>
void two_inputs(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values u = b.data(rows * columns), v = b.data(rows * columns), y = b.data(rows * columns);
  (b.k.*member)({0, rows, columns}, u.data(), v.data(), y.data());
  b.outputs = {y};
}
template <ActivationKind kind, bool with_bias>
void run_activation(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), bias = b.data(columns), y = b.data(rows * columns);
  b.k.activation({0, rows, columns}, kind, x.data(), with_bias ? bias.data() : nullptr, y.data());
  b.outputs = {x, y};
}
template <ActivationKind kind>
void run_activation_backward(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values dy = b.data(rows * columns), x = b.data(rows * columns), dx = b.data(rows * columns);
  Values alone = dx, parts = b.partials(rows, columns);
  b.k.activation_backward({0, rows, columns}, kind, dy.data(), x.data(), dx.data(), parts.data());
  b.k.activation_backward({0, rows, columns}, kind, dy.data(), x.data(), alone.data(), nullptr);
  b.outputs = {dx, alone};
  b.combine(parts, columns);
}
void run_swiglu_backward(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  Values dy = b.data(n), gate = b.data(n), up = b.data(n), dgate = b.data(n), dup = b.data(n);
  b.k.swiglu_backward({0, n, 1}, dy.data(), gate.data(), up.data(), dgate.data(), dup.data());
  b.outputs = {dgate, dup};
}
template <bool with_relu>
void run_add(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values u = b.data(rows * columns), v = b.data(rows * columns);
  b.k.add({0, rows, columns}, u.data(), nullptr, 1, v.data(), with_relu, u.data());  // in place
  b.outputs = {u};
}
template <bool with_bias, bool with_residual>
void run_add_bias(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), bias = b.data(columns), more = b.data(rows * columns);
  b.k.add({0, rows, columns}, x.data(), with_bias ? bias.data() : nullptr, 1,
          with_residual ? more.data() : nullptr, false, x.data());
  b.outputs = {x};
}
template <Accumulation accumulation>
void run_column_sum(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), parts = b.partials(rows, columns);
  b.k.column_sum({0, rows, columns}, x.data(), parts.data());
  b.combine(parts, columns, accumulation);
}
template <bool with_bias>
void run_layer_norm(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), w = b.data(columns), bias = b.data(columns);
  Values y = b.data(rows * columns), mean = b.sums(rows), rstd = b.sums(rows);
  b.k.layer_norm({0, rows, columns}, 1e-3, x.data(), w.data(), with_bias ? bias.data() : nullptr,
                 y.data(), mean.data(), rstd.data());
  b.outputs = {y, mean, rstd};
}
template <Accumulation accumulation>
void run_layer_norm_backward(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values dy = b.data(rows * columns), x = b.data(rows * columns), w = b.data(columns);
  Values mean = b.sums(rows), rstd = b.sums(rows, 0.5, 2), dx = b.data(rows * columns);
  Values alone = dx, dw = b.partials(rows, columns), db = b.partials(rows, columns);
  Values dw_alone = dw, db_alone = db;
  const RowRange r{0, rows, columns};
  b.k.layer_norm_backward(r, dy.data(), x.data(), w.data(), mean.data(), rstd.data(), accumulation,
                          dx.data(), dw.data(), db.data());
  b.k.layer_norm_backward(r, dy.data(), x.data(), w.data(), mean.data(), rstd.data(), accumulation,
                          alone.data(), nullptr, nullptr);
  b.k.layer_norm_backward(r, dy.data(), x.data(), nullptr, mean.data(), rstd.data(), accumulation,
                          nullptr, dw_alone.data(), db_alone.data());
  b.outputs = {dx, alone};
  for (Values* parts : {&dw, &db, &dw_alone, &db_alone}) b.combine(*parts, columns);
}
void run_rms_norm(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), w = b.data(columns), y = b.data(rows * columns);
  Values rstd = b.sums(rows);
  b.k.layer_norm({0, rows, columns}, 1e-3, x.data(), w.data(), nullptr, y.data(), nullptr,
                 rstd.data());
  b.outputs = {y, rstd};
}
template <Accumulation accumulation>
void run_rms_norm_backward(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values dy = b.data(rows * columns), x = b.data(rows * columns), w = b.data(columns);
  Values rstd = b.sums(rows, 0.5, 2), dx = b.data(rows * columns), dw = b.partials(rows, columns);
  Values dw_alone = dw;
  const RowRange r{0, rows, columns};
  b.k.layer_norm_backward(r, dy.data(), x.data(), w.data(), nullptr, rstd.data(), accumulation,
                          dx.data(), dw.data(), nullptr);
  b.k.layer_norm_backward(r, dy.data(), x.data(), w.data(), nullptr, rstd.data(), accumulation,
                          nullptr, dw_alone.data(), nullptr);
  b.outputs = {dx};
  b.combine(dw, columns);
  b.combine(dw_alone, columns);
}
void run_moments(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), means = b.partials(rows, columns), deviations = means;
  Values mean = b.sums(columns), variance = b.sums(columns);
  b.k.moments({0, rows, columns}, x.data(), means.data(), deviations.data());
  b.k.combine_moments({0, columns, columns}, rows, b.rows_per_block(rows, columns), means.data(),
                      deviations.data(), mean.data(), variance.data());
  b.outputs = {mean, variance};
}
void run_affine(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values mean = b.sums(columns), variance = b.sums(columns, 0.1, 2), w = b.data(columns);
  Values bias = b.data(columns), rstd = mean, scale = mean, shift = mean;
  Values sum = b.sums(columns), sum_xhat = b.sums(columns), p = sum, q = sum, c = sum;
  const RowRange r{0, columns, columns};
  b.k.batch_norm_affine(r, 1e-5, mean.data(), variance.data(), w.data(), bias.data(), rstd.data(),
                        scale.data(), shift.data());
  b.k.batch_norm_coefficients(r, rows, sum.data(), sum_xhat.data(), rstd.data(), w.data(), p.data(),
                              q.data(), c.data());
  b.outputs = {rstd, scale, shift, p, q, c};
}
template <bool with_relu, bool with_residual>
void run_scale_shift(Bench& b, std::int64_t rows, std::int64_t columns) {
  Values x = b.data(rows * columns), scale = b.sums(columns), shift = b.sums(columns);
  Values more = b.data(rows * columns), y = x;
  b.k.scale_shift({0, rows, columns}, x.data(), scale.data(), shift.data(), with_relu,
                  with_residual ? more.data() : nullptr, y.data());
  b.outputs = {y};
}
enum class MaskFrom { nothing, output, scale };
template <MaskFrom mask>
void run_batch_norm_backward(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  Values dy = b.data(n), x = b.data(n), y = b.data(n), scale = b.sums(columns);
  Values shift = b.sums(columns), mean = b.sums(columns), rstd = b.sums(columns, 0.5, 2);
  Values p = b.sums(columns), q = b.sums(columns), c = b.sums(columns), dx = x, masked = x;
  Values sum = b.partials(rows, columns), sum_xhat = b.partials(rows, columns), alone = x;
  const RowRange r{0, rows, columns};
  const void* output = mask == MaskFrom::output ? y.data() : nullptr;
  const void* factor = mask == MaskFrom::scale ? scale.data() : nullptr;
  b.k.batch_norm_sums(r, dy.data(), x.data(), output, factor, shift.data(), mean.data(),
                      rstd.data(), sum.data(), sum_xhat.data());
  b.k.batch_norm_backward(r, dy.data(), x.data(), output, factor, shift.data(), mean.data(),
                          p.data(), q.data(), c.data(), dx.data(), masked.data());
  b.k.batch_norm_backward(r, dy.data(), x.data(), output, factor, shift.data(), mean.data(),
                          p.data(), q.data(), c.data(), alone.data(), nullptr);
  b.outputs = {dx, masked, alone};
  b.combine(sum, columns);
  b.combine(sum_xhat, columns);
}
void run_cross_entropy(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::vector<std::int64_t> targets = b.indices(rows, 0, columns);
  Values logits = b.data(rows * columns, -8, 8), losses = b.sums(rows), lse = b.sums(rows);
  const RowRange r{0, rows, columns};
  b.k.cross_entropy(r, {0.1, 1.0}, logits.data(), targets.data(), losses.data(), lse.data());
  b.k.cross_entropy_backward(r, {0.1, 0.25}, logits.data(), targets.data(), lse.data(),
                             logits.data());
  b.outputs = {losses, lse, logits};
}
void run_cut_cross_entropy(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t first = 5, classes = 3 * columns + 5;
  const std::vector<std::int64_t> targets = b.indices(rows, 0, classes);
  Values logits = b.data(rows * columns, -8, 8), tops = b.sums(rows), sums = b.sums(3 * rows);
  Values gradient = logits;
  const RowRange r{0, rows, columns};
  b.k.row_top(r, logits.data(), tops.data());
  b.k.softmax_sums(r, first, logits.data(), targets.data(), tops.data(), sums.data());
  b.k.cross_entropy_backward(r, {0.1, 0.25, first, classes}, logits.data(), targets.data(),
                             tops.data(), gradient.data());
  b.outputs = {tops, sums, gradient};
}
template <bool with_positions>
void run_embedding(Bench& b, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t vocabulary = 23;
  const std::int64_t length = 1 + rows / 3;
  const std::vector<std::int64_t> indices = b.indices(rows, -2, vocabulary);
  std::vector<std::int64_t> own = indices;
  for (std::int64_t& index : own) index = std::max<std::int64_t>(index, -1);
  Values table = b.data(vocabulary * columns), positions = b.data(length * columns);
  Values y = b.data(rows * columns), gradient = b.sums(vocabulary * columns);
  b.k.embedding({0, rows, columns}, own.data(), table.data(),
                with_positions ? positions.data() : nullptr, length, y.data());
  b.k.embedding_backward({0, columns, columns}, rows, columns, own.data(), y.data(),
                         gradient.data());
  b.outputs = {y, gradient};
}
void run_positions(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t batch = 3, length = rows;
  Values x = b.data(batch * length * columns), table = b.data(length * columns), y = x;
  b.k.add({0, batch * length, columns}, x.data(), table.data(), length, nullptr, false, y.data());
  b.outputs = {y};
}
template <bool inverse>
void run_rotary(Bench& b, std::int64_t rows, std::int64_t columns) {
  RotaryLayout layout;
  layout.length = 1 + rows / 2;
  layout.head_dim = 6;
  layout.turned = 3;
  layout.inverse = inverse;
  const std::int64_t width = 4 * layout.head_dim + 0 * columns;
  Values x = b.data(rows * width), cosine = b.sums(layout.length * 3), sine = cosine, y = x;
  b.k.rotary({0, rows, width}, layout, x.data(), cosine.data(), sine.data(), y.data());
  b.outputs = {y};
}
void run_dropout(Bench& b, std::int64_t rows, std::int64_t columns) {
  DropoutKey key;
  key.seed = 3, key.step = 7, key.node = 11, key.first_sample = 5;
  key.sample_elements = columns;
  key.keep = 0.7;
  Values x = b.data(rows * columns, 1, 2), y = x;
  b.k.dropout({0, rows, columns}, key, x.data(), y.data());
  b.outputs = {y};
}

/// Windows with and without stride, padding and overlap.
Window window_of(std::int64_t columns, std::int64_t number) {
  constexpr std::array<std::array<std::int64_t, 6>, 4> shapes{
      {{3, 3, 1, 1, 1, 1}, {2, 2, 2, 2, 0, 0}, {3, 2, 2, 1, 1, 0}, {1, 3, 3, 2, 0, 1}}};
  const auto& s = shapes[static_cast<std::size_t>(number) % shapes.size()];
  Window w;
  w.channels = columns;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    w.in[axis] = axis == 0 ? 7 : 5;
    w.kernel[axis] = s[axis];
    w.stride[axis] = s[axis + 2];
    w.padding[axis] = s[axis + 4];
    w.out[axis] = (w.in[axis] + 2 * w.padding[axis] - w.kernel[axis]) / w.stride[axis] + 1;
  }
  return w;
}
void run_windows(Bench& b, std::int64_t rows, std::int64_t columns) {
  const Window w = window_of(columns, rows);
  const std::int64_t batch = 2, pixels = batch * w.out[0] * w.out[1];
  const std::int64_t elements = w.kernel[0] * w.kernel[1] * columns;
  Values x = b.data(batch * 35 * columns), gathered = b.data(pixels * elements), dx = x;
  b.k.im2col({0, pixels, elements}, w, x.data(), gathered.data());
  b.k.col2im({0, batch, 1}, w, gathered.data(), dx.data());
  b.outputs = {gathered, dx};
}
void run_max_pool(Bench& b, std::int64_t rows, std::int64_t columns) {
  const Window w = window_of(columns, rows);
  const std::int64_t batch = 2, pixels = batch * w.out[0] * w.out[1];
  // Few different values: the first of equal ones counts.
  Values x = b.data(batch * 35 * columns), y = b.data(pixels * columns), dy = b.data(y.count());
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, std::round(x.at(i)));
  x.set(b.below(x.count()), std::nan(""));
  Values dx = x;
  std::vector<std::uint8_t> taps(static_cast<std::size_t>(y.count()));
  b.k.max_pool({0, pixels, columns}, w, x.data(), y.data(), taps.data());
  b.k.max_pool_backward({0, batch, 1}, w, dy.data(), taps.data(), dx.data());
  Values chosen = b.data(y.count());
  for (std::int64_t i = 0; i < y.count(); ++i) {
    chosen.set(i, taps[static_cast<std::size_t>(i)]);
    if (std::isnan(y.at(i))) y.set(i, 100);
  }
  b.outputs = {y, chosen, dx};
}
void run_means(Bench& b, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t pixels = 7;
  Values x = b.data(rows * pixels * columns), y = b.data(rows * columns), dx = x;
  b.k.mean_rows({0, rows, columns}, pixels, x.data(), y.data());
  b.k.mean_rows_backward({0, rows, columns}, pixels, y.data(), dx.data());
  b.outputs = {y, dx};
}

void run_adamw(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  Values weight = b.data(n), gradient = b.data(n), first = b.data(n), second = b.data(n, 0.1, 2);
  b.k.adamw({0, n, 1}, {0.5, 0.99, 0.9, 0.95, 1e-8, 1e-2, 1.5}, weight.data(), gradient.data(),
            first.data(), second.data());
  b.outputs = {weight, first, second};
}
void run_sgd(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  Values weight = b.data(n), gradient = b.data(n), velocity = b.data(n);
  b.k.sgd({0, n, 1}, {0.5, 1e-2, 0.9, 0.1}, weight.data(), gradient.data(), velocity.data());
  b.outputs = {weight, velocity};
}
void run_square_sums(Bench& b, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns, block = 100, blocks = (n + block - 1) / block;
  Values x = b.data(n), sums(Element::float64, blocks);
  b.k.square_sums({0, blocks, block}, n, x.data(), static_cast<double*>(sums.data()));
  b.outputs = {sums};
}

const KernelCase cases[] = {
    {"adamw", run_adamw},
    {"sgd", run_sgd},
    {"square_sums", run_square_sums},
    {"swiglu", two_inputs<&KernelTable::swiglu>},
    {"swiglu_backward", run_swiglu_backward},
    {"multiply", two_inputs<&KernelTable::multiply>},
    {"add", run_add<false>},
    {"add, relu", run_add<true>},
    {"relu", run_activation<ActivationKind::relu, false>},
    {"bias, relu", run_activation<ActivationKind::relu, true>},
    {"relu, backward", run_activation_backward<ActivationKind::relu>},
    {"silu", run_activation<ActivationKind::silu, false>},
    {"bias, silu", run_activation<ActivationKind::silu, true>},
    {"silu, backward", run_activation_backward<ActivationKind::silu>},
    {"tanh", run_activation<ActivationKind::tanh, false>},
    {"bias, tanh", run_activation<ActivationKind::tanh, true>},
    {"tanh, backward", run_activation_backward<ActivationKind::tanh>},
    {"gelu, erf", run_activation<ActivationKind::gelu_erf, false>},
    {"bias, gelu, erf", run_activation<ActivationKind::gelu_erf, true>},
    {"gelu, erf, backward", run_activation_backward<ActivationKind::gelu_erf>},
    {"gelu, tanh", run_activation<ActivationKind::gelu_tanh, false>},
    {"bias, gelu, tanh", run_activation<ActivationKind::gelu_tanh, true>},
    {"gelu, tanh, backward", run_activation_backward<ActivationKind::gelu_tanh>},
    {"add_bias", run_add_bias<true, false>},
    {"add residual", run_add_bias<false, true>},
    {"add_bias and residual", run_add_bias<true, true>},
    {"column_sum", run_column_sum<Accumulation::overwrite>},
    {"column_sum, added", run_column_sum<Accumulation::add>},
    {"layer_norm", run_layer_norm<true>},
    {"layer_norm without bias", run_layer_norm<false>},
    {"layer_norm_backward", run_layer_norm_backward<Accumulation::overwrite>},
    {"layer_norm_backward, added", run_layer_norm_backward<Accumulation::add>},
    {"rms_norm", run_rms_norm},
    {"rms_norm_backward", run_rms_norm_backward<Accumulation::overwrite>},
    {"rms_norm_backward, added", run_rms_norm_backward<Accumulation::add>},
    {"moments", run_moments},
    {"batch_norm_affine, batch_norm_coefficients", run_affine},
    {"scale_shift", run_scale_shift<false, false>},
    {"scale_shift, relu", run_scale_shift<true, false>},
    {"scale_shift, residual and relu", run_scale_shift<true, true>},
    {"batch_norm_backward", run_batch_norm_backward<MaskFrom::nothing>},
    {"batch_norm_backward behind a relu", run_batch_norm_backward<MaskFrom::scale>},
    {"batch_norm_backward behind a residual", run_batch_norm_backward<MaskFrom::output>},
    {"cross_entropy", run_cross_entropy},
    {"cross_entropy, cut", run_cut_cross_entropy},
    {"embedding", run_embedding<false>},
    {"embedding with positions", run_embedding<true>},
    {"add, rows of a table", run_positions},
    {"rotary", run_rotary<false>},
    {"rotary, back", run_rotary<true>},
    {"dropout", run_dropout},
    {"im2col, col2im", run_windows},
    {"max_pool", run_max_pool},
    {"mean_rows", run_means},
};

double tolerance(Element element) {
  switch (element) {
    case Element::float64:
      return 1e-13;
    case Element::bfloat16:
      return 1.6e-2;  // two steps of the type
    default:
      return 2e-6;
  }
}

/// max |a − b| / max |b|
double distance(const Values& a, const Values& b) {
  double difference = 0, largest = 0;
  EXPECT_EQ(a.count(), b.count());
  for (std::int64_t i = 0; i < b.count(); ++i) {
    const double gap = std::abs(a.at(i) - b.at(i));
    difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
    largest = std::max(largest, std::abs(b.at(i)));
  }
  return difference == 0 ? 0 : difference / largest;
}

/// A table of kernels, and whether one call makes the partial sums of all blocks.
struct Tables {
  Bench::Tables of;
  bool device;
};
void expect_alike(const KernelCase& kernel, Tables one, Tables other, Element element,
                  std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Bench got(one.of, element, one.device, seed), wanted(other.of, element, other.device, seed);
  kernel.run(got, rows, columns);
  kernel.run(wanted, rows, columns);
  ASSERT_EQ(got.outputs.size(), wanted.outputs.size());
  for (std::size_t i = 0; i < wanted.outputs.size(); ++i) {
    // Sums over many rows of bfloat16 data are made in float32.
    const double limit =
        tolerance(element == Element::float64 ? element : wanted.outputs[i].element);
    EXPECT_LE(distance(got.outputs[i], wanted.outputs[i]),
              limit * (wanted.outputs[i].element == element ? 1 : 4))
        << kernel.name << ", output " << i << ", element type " << static_cast<int>(element) << ", "
        << rows << " x " << columns;
  }
}
/// Calls check(case, element type, rows, columns, seed) for every case, some shapes each.
template <class Check>
void for_drawn_shapes(const Check& check) {
  constexpr std::array<std::int64_t, 9> widths{1, 3, 8, 16, 33, 64, 100, 257, 520};
  RandomStream random(20);
  for (const KernelCase& kernel : cases) {
    for (const Element element : {Element::float32, Element::float64, Element::bfloat16}) {
      for (int trial = 0; trial < 3; ++trial) {
        const auto rows = static_cast<std::int64_t>(1 + random.below(trial == 0 ? 3 : 70));
        check(kernel, element, rows, widths[random.below(widths.size())], random.bits());
      }
    }
  }
}

}  // namespace
}  // namespace heteroperf
