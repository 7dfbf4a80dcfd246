// Faults are planted into a device's kernels, one per training. The losses must part from those of
// the reference, and the search must name the operator; without a fault the losses must not part.
#include "runners/engine/module/torch_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/engine/noise_band.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t steps = 4;

/// The numbers of a row that a fault spoils are wrong by this share of themselves.
constexpr float wrong = 1.002f;

const KernelTable& sound() { return kernel_variants().front().kernels(Element::float32); }

void spoil(void* values, std::int64_t begin, std::int64_t end) {
  auto* const v = static_cast<float*>(values);
  for (std::int64_t i = begin; i < end; ++i) v[i] *= wrong;
}
void spoil_rows(const RowRange& r, void* values) {
  if (values != nullptr) spoil(values, r.begin * r.columns, r.end * r.columns);
}

/// The first half of every row is lost. An update by adamw would not see it halved.
void lose_half(const RowRange& r, void* values) {
  if (values == nullptr) return;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    auto* const v = static_cast<float*>(values) + row * r.columns;
    std::fill(v, v + r.columns / 2, 0.0f);
  }
}

/// A kernel with something wrong, as a function without state.
template <class Kernel>
std::function<void(ActiveDevice&)> planted(Kernel KernelTable::*kernel, Kernel faulty) {
  return [=](ActiveDevice& device) { device.plant(Element::float32, kernel, faulty); };
}

struct Fault {
  const char *model, *op;
  std::function<void(ActiveDevice&)> plant;
};

/// The chip's products round to fp16 first, though it says nothing of that.
RankDevice coarse_products() {
  EmulatedChip chip;
  chip.name = "coarse";
  chip.precisions = {"fp32"};
  chip.products = OperandFormat::fp16;
  return {.name = "emulated:coarse", .chip = chip};
}

std::vector<Fault> faults() {
  using K = KernelTable;
  using R = RowRange;
  using C = const void*;
  using I = std::int64_t;
  std::vector<Fault> all;
  const auto add = [&](const char* model, const char* op, auto kernel, auto faulty) {
    all.push_back({model, op, planted(kernel, +faulty)});
  };
  add("nano", "layer_norm", &K::layer_norm,
      [](R r, double eps, C x, C w, C b, void* y, void* mean, void* rstd) {
        sound().layer_norm(r, eps * 300, x, w, b, y, mean, rstd);
        spoil_rows(r, y);
      });
  // Only what is kept for the backward pass is wrong.
  add("nano", "layer_norm", &K::layer_norm,
      [](R r, double eps, C x, C w, C b, void* y, void* mean, void* rstd) {
        sound().layer_norm(r, eps, x, w, b, y, mean, rstd);
        if (rstd != nullptr) spoil(rstd, r.begin, r.end);
      });
  add("nano", "layer_norm_backward", &K::layer_norm_backward,
      [](R r, C dy, C x, C w, C mean, C rstd, Accumulation how, void* dx, void* dw, void* db) {
        sound().layer_norm_backward(r, dy, x, w, mean, rstd, how, dx, dw, db);
        lose_half(r, dx);
      });
  add("nano", "layer_norm_backward", &K::layer_norm_backward,
      [](R r, C dy, C x, C w, C mean, C rstd, Accumulation how, void* dx, void* dw, void* db) {
        sound().layer_norm_backward(r, dy, x, w, mean, rstd, how, dx, dw, db);
        if (dw != nullptr) lose_half({0, 1, r.columns}, dw);
      });
  add("nano", "activation", &K::activation, [](R r, ActivationKind kind, void* x, C bias, void* y) {
    sound().activation(r, kind, x, bias, y);
    spoil_rows(r, y);
  });
  add("nano", "activation_backward", &K::activation_backward,
      [](R r, ActivationKind, C dy, C kept, void* dx, void* sum) {
        sound().activation_backward(r, ActivationKind::silu, dy, kept, dx, sum);
      });
  add("nano", "cross_entropy", &K::cross_entropy,
      [](R r, CrossEntropyTerms t, C logits, const I* targets, void* losses, void* lse) {
        sound().cross_entropy(r, t, logits, targets, losses, lse);
        spoil(losses, r.begin, r.end);
      });
  add("nano", "cross_entropy_backward", &K::cross_entropy_backward,
      [](R r, CrossEntropyTerms t, C logits, const I* targets, C lse, void* gradient) {
        t.scale *= 1.01;
        t.label_smoothing += 0.01;
        sound().cross_entropy_backward(r, t, logits, targets, lse, gradient);
      });
  add("nano", "embedding", &K::embedding,
      [](R r, const I* indices, C table, C positions, I length, void* y) {
        sound().embedding(r, indices, table, positions, length, y);
        // The first number of each row alone.
        for (I row = r.begin; row < r.end; ++row) spoil(y, row * r.columns, row * r.columns + 1);
      });
  add("nano", "embedding_backward", &K::embedding_backward,
      [](R r, I rows, I width, const I* indices, C dy, void* gradient) {
        // The last row is forgotten.
        sound().embedding_backward(r, rows - 1, width, indices, dy, gradient);
      });
  add("nano", "add", &K::add, [](R r, C a, C table, I length, C b, bool relu, void* y) {
    sound().add(r, a, table, length, b, relu, y);
    spoil_rows(r, y);
  });
  add("nano", "column_sum", &K::column_sum, [](R r, C x, void* partial) {
    sound().column_sum(r, x, partial);
    lose_half({0, 1, r.columns}, partial);
  });
  add("nano", "combine", &K::combine,
      [](R r, I blocks, C partials, Accumulation how, void* target) {
        // The last block is left out, where there are several; else too much is added.
        sound().combine(r, blocks, partials, how, target);
        auto* const t = static_cast<float*>(target);
        for (I c = r.begin; c < r.end; ++c) t[c] *= 1.2f;
      });
  add("nano", "adamw", &K::adamw, [](R r, const AdamwScalars& s, void* w, C g, void* m, void* v) {
    AdamwScalars other = s;
    other.step *= 1.01;
    sound().adamw(r, other, w, g, m, v);
  });
  all.push_back({"nano", "product", [](ActiveDevice& d) {
                   d = ActiveDevice(coarse_products(), FallbackRules::parse("allow"));
                 }});
  add("resnet", "moments", &K::moments, [](R r, C x, void* mean, void* deviation) {
    sound().moments(r, x, mean, deviation);
    spoil(deviation, 0, r.columns);
  });
  add("resnet", "batch_norm_affine", &K::batch_norm_affine,
      [](R r, double eps, C mean, C var, C w, C b, void* rstd, void* scale, void* shift) {
        sound().batch_norm_affine(r, eps, mean, var, w, b, rstd, scale, shift);
        spoil(shift, r.begin, r.end);
      });
  add("resnet", "scale_shift", &K::scale_shift,
      [](R r, C x, C scale, C shift, bool relu, C residual, void* y) {
        sound().scale_shift(r, x, scale, shift, relu, residual, y);
        spoil_rows(r, y);
      });
  add("resnet", "batch_norm_backward", &K::batch_norm_backward,
      [](R r, C dy, C x, C y, C scale, C shift, C mean, C a, C b, C c, void* dx, void* masked) {
        sound().batch_norm_backward(r, dy, x, y, scale, shift, mean, a, b, c, dx, masked);
        spoil_rows(r, dx);
      });
  add("resnet", "max_pool", &K::max_pool,
      [](R r, const Window& w, C x, void* y, std::uint8_t* taps) {
        sound().max_pool(r, w, x, y, taps);
        if (r.begin == 0) spoil(y, 0, w.channels);
      });
  add("resnet", "mean_rows", &K::mean_rows, [](R r, I pixels, C x, void* y) {
    sound().mean_rows(r, pixels, x, y);
    spoil_rows(r, y);
  });
  add("resnet", "sgd", &K::sgd, [](R r, const SgdScalars& s, void* w, C g, void* v) {
    SgdScalars other = s;
    other.momentum *= 0.9;
    sound().sgd(r, other, w, g, v);
  });
  return all;
}

NodeId unit(ModelGraph& graph, NodeId x, const std::string& name) {
  x = graph.add(name + ".conv", Conv2d{8, {3, 3}, {1, 1}, {1, 1}, 1, false}, {x});
  return graph.add(name + ".norm", BatchNorm{}, {x});
}

/// A stem with a pooling, two residual blocks and a head, on 3x16x16 images.
ModelGraph small_resnet() {
  ModelGraph graph;
  graph.name = "small-resnet";
  NodeId x = graph.add("image", Input{InputKind::images, 3, 16, 16, 0}, {});
  x = graph.add("stem.relu", Relu{}, {unit(graph, x, "stem")});
  x = graph.add("pool", MaxPool{{2, 2}, {2, 2}, {0, 0}}, {x});
  for (const char* block : {"first", "second"}) {
    const std::string name = block;
    NodeId y = graph.add(name + ".relu", Relu{}, {unit(graph, x, name + ".in")});
    y = unit(graph, y, name + ".out");
    x = graph.add(name + ".end", Relu{}, {graph.add(name + ".add", Add{}, {x, y})});
  }
  x = graph.add("mean", GlobalAvgPool{}, {x});
  x = graph.add("head", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

ModelGraph nano_llm() {
  ModelOptions options;
  options.length = 16;
  options.classes = 40;
  return build_model("nano", options);
}

TrainingSpec training_of(const std::string& model) {
  const bool llm = model == "nano";
  TrainingSpec spec = test::small_training(llm ? nano_llm() : small_resnet(), Precision::fp32);
  spec.recipe.kind = llm ? OptimizerKind::adamw : OptimizerKind::sgd;
  spec.recipe.learning_rate = llm ? 1e-3 : 0.05;
  spec.recipe.momentum = 0.9;
  return test::replicated(std::move(spec), 1, 4, 2);
}

ActiveDevice device_of(const RankDevice& device) {
  return ActiveDevice(device, FallbackRules::parse("allow"));
}

std::vector<double> losses_on(const TrainingSpec& spec, ActiveDevice& device) {
  const DeviceScope scope(device);
  const auto alone = make_null_communicator();
  const auto session = start_training(spec, *alone, nullptr);
  std::vector<double> losses;
  for (std::uint64_t n = 0; n < steps; ++n) losses.push_back(session->step().loss);
  return losses;
}

/// A training, its losses with the reference, and how far sound ones are apart.
struct Judge {
  explicit Judge(const std::string& model, std::uint64_t seed = 1) : spec(training_of(model)) {
    spec.seed = seed;
    ActiveDevice exact = device_of(exact_device());
    reference = losses_on(spec, exact);
    std::vector<std::vector<double>> runs{reference};
    for (const RankDevice& device : drawn_devices(exact.device(), fewest_band_runs)) {
      ActiveDevice active(device);
      runs.push_back(losses_on(spec, active));
    }
    band = noise_band(runs);
  }

  std::optional<std::size_t> parted(ActiveDevice& device) const {
    return parted_at(losses_on(spec, device), reference,
                     [&](std::size_t n) { return band.limit(n); });
  }

  std::optional<LocatedFault> locate(const ActiveDevice& device, std::uint64_t count) const {
    return locate_fault(spec, device, exact_device(), fewest_band_runs, count);
  }

  TrainingSpec spec;
  std::vector<double> reference;
  NoiseBand band;
};

const Judge& judge_of(const std::string& model) {
  static const Judge nano("nano"), resnet("resnet");
  return model == "nano" ? nano : resnet;
}

TEST(LocateFault, ThePlantedOperatorIsNamed) {
  std::size_t named = 0;
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.model + std::string(" ") + fault.op);
    const Judge& judge = judge_of(fault.model);
    ActiveDevice suspect = device_of({});
    fault.plant(suspect);
    const auto parted = judge.parted(suspect);
    EXPECT_TRUE(parted) << "the losses stay within " << judge.band.limit(steps - 1);
    if (!parted) continue;
    const auto found = judge.locate(suspect, *parted + 1);
    EXPECT_TRUE(found);
    if (!found) continue;
    EXPECT_EQ(found->op, fault.op)
        << found->layer << ", " << to_string(found->pass) << ", " << found->difference << " beside "
        << found->band << ", then " << found->after;
    EXPECT_GT(found->difference, parted_bands * found->band);
    EXPECT_LT(found->after, found->difference);
    named += found->op == fault.op ? 1 : 0;
  }
  EXPECT_EQ(named, faults().size());
}

TEST(LocateFault, NoneIsNamedWithoutAFault) {
  std::vector<RankDevice> devices{{}};
  for (const KernelVariant& variant : kernel_variants()) {
    devices.push_back(RankDevice{.name = std::string("cpu:") + variant.name,
                                 .kernels = *find_value<KernelSet>(variant.name)});
  }
  for (std::uint64_t order = 101; devices.size() < 10; ++order) {
    RankDevice device = drawn_devices({}, 1).front();
    device.chip->sum_order = order;
    devices.push_back(device);
  }
  std::uint64_t seed = 0;
  for (const char* model : {"nano", "resnet"}) {
    for (const RankDevice& device : devices) {
      const Judge judge(model, ++seed);
      ActiveDevice suspect = device_of(device);
      EXPECT_FALSE(judge.parted(suspect)) << model << " on " << device.name;
      const auto found = judge.locate(suspect, steps);
      EXPECT_FALSE(found) << model << " on " << device.name << ": " << found->layer << ", "
                          << to_string(found->pass) << ", " << found->op << " " << found->difference
                          << " beside " << found->band;
    }
  }
}

}  // namespace
}  // namespace heteroperf
