// Training passes (forward and backward, no optimizer) of whole models and of their parts: our
// operators beside LibTorch's differentiable functions, in one process with equal thread counts.
// Compare pairs with --benchmark_enable_random_interleaving=true --benchmark_repetitions=7.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "runners/device/host_pool.hpp"
#include "runners/engine/pipeline/stage_executor.hpp"
#include "tests/unit/runners/engine/reference_model.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

NodeId end_with_loss(ModelGraph& graph, NodeId features) {
  const NodeId head = graph.add("head", Linear{10, false, {}}, {features});
  return graph.add("loss", CrossEntropy{}, {head});
}

/// {128} tokens → embedding {128, features}.
NodeId add_tokens(ModelGraph& graph, std::int64_t features) {
  Input input;
  input.kind = InputKind::tokens;
  input.length = 128;
  return graph.add("embedding", Embedding{512, features}, {graph.add("sample", input, {})});
}

NodeId add_images(ModelGraph& graph, std::int64_t channels, std::int64_t extent) {
  Input input;
  input.channels = 3;
  input.height = input.width = extent;
  const NodeId sample = graph.add("sample", input, {});
  return graph.add("stem", Conv2d{channels, {1, 1}, {1, 1}, {0, 0}, 1, false}, {sample});
}

ModelGraph of_tokens(std::int64_t features,
                     const std::function<NodeId(ModelGraph&, NodeId)>& part) {
  ModelGraph graph;
  const NodeId out = part(graph, add_tokens(graph, features));
  end_with_loss(graph, graph.add("last", TakeToken{0}, {out}));
  return graph;
}

ModelGraph of_images(std::int64_t channels, std::int64_t extent,
                     const std::function<NodeId(ModelGraph&, NodeId)>& part) {
  ModelGraph graph;
  const NodeId out = part(graph, add_images(graph, channels, extent));
  end_with_loss(graph, graph.add("pool", GlobalAvgPool{}, {out}));
  return graph;
}

ModelGraph convolution(std::int64_t in, std::int64_t out, std::int64_t extent, std::int64_t kernel,
                       std::int64_t stride) {
  return of_images(in, extent, [&](ModelGraph& g, NodeId x) {
    const std::int64_t pad = kernel / 2;
    return g.add("conv", Conv2d{out, {kernel, kernel}, {stride, stride}, {pad, pad}, 1, false},
                 {x});
  });
}

ModelGraph resnet18(std::int64_t extent) {
  ModelOptions options;
  options.height = options.width = extent;
  options.classes = 10;
  return build_model("resnet18", options);
}

struct Case {
  std::string name;
  std::int64_t batch;
  std::function<ModelGraph()> build;
};

std::vector<Case> cases() {
  std::vector<Case> all{
      {"gpt_nano", 16, [] { return build_model("nano"); }},
      {"gpt_micro", 16, [] { return build_model("micro"); }},
      {"resnet18_32", 32, [] { return resnet18(32); }},
      {"linear_gelu_256_1024", 16,
       [] {
         return of_tokens(256, [](ModelGraph& g, NodeId x) {
           return g.add("gelu", Gelu{}, {g.add("up", Linear{1024, true, {}}, {x})});
         });
       }},
      {"layer_norm_256", 16,
       [] {
         return of_tokens(256, [](ModelGraph& g, NodeId x) {
           const NodeId norm = g.add("norm", LayerNorm{}, {x});
           return g.add("add", Add{}, {x, norm});
         });
       }},
      {"attention_4x64", 16,
       [] {
         return of_tokens(768, [](ModelGraph& g, NodeId x) {
           return g.add("attention", Attention{4, 4, 64, true, false}, {x});
         });
       }},
      {"batch_norm_relu_64x16", 32,
       [] {
         return of_images(64, 16, [](ModelGraph& g, NodeId x) {
           return g.add("relu", Relu{}, {g.add("norm", BatchNorm{}, {x})});
         });
       }},
  };
  const std::int64_t shapes[][5] = {{64, 64, 8, 3, 1},   {64, 128, 8, 3, 2},   {128, 128, 4, 3, 1},
                                    {256, 256, 2, 3, 1}, {512, 512, 1, 3, 1},  {64, 64, 16, 3, 1},
                                    {64, 64, 32, 3, 1},  {128, 128, 16, 3, 1}, {64, 256, 16, 1, 1}};
  for (const auto& s : shapes) {
    all.push_back(
        {fmt::format("conv_{}_{}_at_{}_kernel_{}_stride_{}", s[0], s[1], s[2], s[3], s[4]), 32,
         [s] { return convolution(s[0], s[1], s[2], s[3], s[4]); }});
  }
  all.push_back({"stem_7_stride_2_at_32", 32, [] {
                   ModelGraph graph;
                   Input input;
                   input.channels = 3;
                   input.height = input.width = 32;
                   const Conv2d stem{64, {7, 7}, {2, 2}, {3, 3}, 1, false};
                   const NodeId x = graph.add("stem", stem, {graph.add("sample", input, {})});
                   end_with_loss(graph, graph.add("pool", GlobalAvgPool{}, {x}));
                   return graph;
                 }});
  return all;
}

struct Batch {
  Batch(const ModelGraph& graph, std::int64_t size)
      : sample(random_sample(graph, size, at::kFloat, 1)),
        targets(random_targets(graph, size, 2)) {}
  at::Tensor sample, targets;
};

void run_ours(benchmark::State& state, const Case& subject, Fusion fusion) {
  at::set_num_threads(static_cast<int>(state.range(0)));
  const ModelGraph graph = subject.build();
  const RankMemory memory;
  const MemoryScope charged(memory);
  const Batch batch(graph, subject.batch);
  const c10::InferenceMode no_tape;
  ParameterStore store(graph, Precision::fp32, 1);
  StageExecutor executor(whole_model(graph, at::kFloat, fusion), store);
  for (auto _ : state) {
    executor.overwrite_gradients();
    executor.put(0, graph.input(), batch.sample);
    executor.put_targets(0, batch.targets);
    executor.forward(0, {});
    executor.backward(0);
    executor.release(0);
  }
  state.counters["peak_MB"] = static_cast<double>(memory.use().peak_bytes) * 1e-6;
}

void run_eager(benchmark::State& state, const Case& subject) {
  at::set_num_threads(static_cast<int>(state.range(0)));
  const ModelGraph graph = subject.build();
  const RankMemory memory;
  const MemoryScope charged(memory);
  const Batch batch(graph, subject.batch);
  ReferenceModel model(graph, at::kFloat, 1);
  for (auto _ : state) {
    model.zero_gradients();
    model.forward(batch.sample, batch.targets, {}).backward();
    model.release_outputs();
  }
  state.counters["peak_MB"] = static_cast<double>(memory.use().peak_bytes) * 1e-6;
}

template <class Body>
void add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->Arg(1)
      ->Arg(2)
      ->ArgName("threads")
      ->MeasureProcessCPUTime()
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all() {
  for (const Case& subject : cases()) {
    add(subject.name + "/ours",
        [subject](benchmark::State& state) { run_ours(state, subject, Fusion::on); });
    add(subject.name + "/unfused",
        [subject](benchmark::State& state) { run_ours(state, subject, Fusion::off); });
    add(subject.name + "/eager", [subject](benchmark::State& state) { run_eager(state, subject); });
  }
}

}  // namespace
}  // namespace heteroperf

int main(int argc, char** argv) {
  heteroperf::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
