#include "tests/unit/runners/engine/small_trainings.hpp"

#include <string>
#include <utility>
#include <variant>

#include "metrics/base/random.hpp"
#include "runners/plan/even_plan.hpp"

namespace heteroperf::test {
namespace {

constexpr std::int64_t heads = 4, head_dim = 8, width = heads * head_dim;
constexpr std::int64_t context = 16, vocabulary = 40;

NodeId attention_block(ModelGraph& graph, NodeId x, const std::string& name, bool causal,
                       double dropout) {
  NodeId y = graph.add(name + ".norm1", LayerNorm{}, {x});
  y = graph.add(name + ".qkv", Linear{3 * width, true, {}}, {y});
  y = graph.add(name + ".attention", Attention{heads, heads, head_dim, causal, false}, {y});
  y = graph.add(name + ".out", Linear{width, true, {}}, {y});
  if (dropout > 0) y = graph.add(name + ".drop", Dropout{dropout}, {y});
  x = graph.add(name + ".add1", Add{}, {x, y});
  y = graph.add(name + ".norm2", LayerNorm{}, {x});
  y = graph.add(name + ".up", Linear{4 * width, true, {}}, {y});
  y = graph.add(name + ".gelu", Gelu{}, {y});
  y = graph.add(name + ".down", Linear{width, true, {}}, {y});
  return graph.add(name + ".add2", Add{}, {x, y});
}

NodeId llama_block(ModelGraph& graph, NodeId x, const std::string& name) {
  constexpr std::int64_t kv_heads = 2;
  NodeId y = graph.add(name + ".norm1", RmsNorm{}, {x});
  y = graph.add(name + ".qkv", Linear{(heads + 2 * kv_heads) * head_dim, false, {}}, {y});
  y = graph.add(name + ".rotary", Rotary{heads, kv_heads, head_dim, 10000.0}, {y});
  y = graph.add(name + ".attention", Attention{heads, kv_heads, head_dim, true, false}, {y});
  y = graph.add(name + ".out", Linear{width, false, {}}, {y});
  x = graph.add(name + ".add1", Add{}, {x, y});
  y = graph.add(name + ".norm2", RmsNorm{}, {x});
  const NodeId gate = graph.add(name + ".gate", Linear{3 * width, false, {}}, {y});
  const NodeId silu = graph.add(name + ".silu", Silu{}, {gate});
  const NodeId up = graph.add(name + ".up", Linear{3 * width, false, {}}, {y});
  y = graph.add(name + ".product", Multiply{}, {silu, up});
  y = graph.add(name + ".down", Linear{width, false, {}}, {y});
  return graph.add(name + ".add2", Add{}, {x, y});
}

NodeId conv_unit(ModelGraph& graph, NodeId x, const std::string& name, std::int64_t channels,
                 std::int64_t stride) {
  Conv2d conv{channels, {3, 3}, {stride, stride}, {1, 1}, 1, false};
  x = graph.add(name + ".conv", conv, {x});
  x = graph.add(name + ".norm", BatchNorm{}, {x});
  return graph.add(name + ".relu", Relu{}, {x});
}

}  // namespace

std::int64_t RandomSamples::images(Split split, std::uint64_t index) const {
  if (spec_.images == 0) return 1;
  const auto numbers = static_cast<std::uint64_t>(spec_.images - spec_.fewest_images + 1);
  const std::uint64_t bits = random_bits(static_cast<std::uint64_t>(split) + 71, index);
  return spec_.fewest_images + static_cast<std::int64_t>(bits % numbers);
}

void RandomSamples::read(Split split, std::uint64_t index, SampleView out) const {
  const auto key = random_bits(static_cast<std::uint64_t>(split) + 17, index);
  for (std::size_t i = 0; i < out.pixels.size(); ++i) {
    out.pixels[i] = static_cast<float>(to_unit(random_bits(key, i)) - 0.5);
  }
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    out.tokens[i] = static_cast<std::int64_t>(random_bits(key, i)) & 7;
  }
  for (std::size_t i = 0; i < out.targets.size(); ++i) {
    const bool bright = !out.pixels.empty() && out.pixels[0] > 0;
    out.targets[i] = out.pixels.empty() ? (out.tokens[i] * 3 + 1) % 8 : (bright ? 1 : 0);
  }
  // Captions have another number of targets each, none before the text.
  if (!spec_.lacks_targets()) return;
  const auto places = static_cast<std::size_t>(spec_.image_places * images(split, index));
  const std::size_t last = places + 1 + index % (out.tokens.size() - places - 1);
  for (std::size_t i = 0; i < out.targets.size(); ++i) {
    if (i < places) out.tokens[i] = spec_.classes - 2;
    if (i < places || i >= last) out.targets[i] = -1;
  }
}

ModelGraph tiny_gpt(double dropout) { return gpt(2, dropout); }

ModelGraph gpt(int blocks, double dropout) {
  ModelGraph graph;
  graph.name = "tiny-gpt";
  NodeId x = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, context}, {});
  x = graph.add("embedding", Embedding{vocabulary, width}, {x});
  x = graph.add("positions", PositionEmbedding{context}, {x});
  for (int b = 0; b < blocks; ++b) {
    x = attention_block(graph, x, "block" + std::to_string(b), true, dropout);
  }
  x = graph.add("norm", LayerNorm{}, {x});
  x = graph.add("head", Linear{vocabulary, false, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

ModelGraph tiny_llama() {
  ModelGraph graph;
  graph.name = "tiny-llama";
  NodeId x = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, context}, {});
  x = graph.add("embedding", Embedding{vocabulary, width}, {x});
  for (const char* name : {"block0", "block1"}) x = llama_block(graph, x, name);
  x = graph.add("norm", RmsNorm{}, {x});
  x = graph.add("head", Linear{vocabulary, false, "embedding"}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

ModelGraph tiny_cnn(double dropout) {
  ModelGraph graph;
  graph.name = "tiny-cnn";
  NodeId x = graph.add("image", Input{InputKind::images, 3, 8, 8, 0}, {});
  x = conv_unit(graph, x, "stem", 8, 1);
  NodeId y = conv_unit(graph, x, "first", 8, 1);
  y = graph.add("second.conv", Conv2d{8, {3, 3}, {1, 1}, {1, 1}, 1, false}, {y});
  y = graph.add("second.norm", BatchNorm{}, {y});
  x = graph.add("add", Add{}, {x, y});
  x = graph.add("relu", Relu{}, {x});
  x = conv_unit(graph, x, "down", 16, 2);
  x = graph.add("pool", GlobalAvgPool{}, {x});
  if (dropout > 0) x = graph.add("drop", Dropout{dropout}, {x});
  x = graph.add("head", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{0.1}, {x});
  return graph;
}

ModelGraph tiny_vit() {
  ModelGraph graph;
  graph.name = "tiny-vit";
  NodeId x = graph.add("image", Input{InputKind::images, 3, 16, 16, 0}, {});
  x = graph.add("patches", Conv2d{width, {4, 4}, {4, 4}, {0, 0}, 1, true}, {x});
  x = graph.add("sequence", ToSequence{}, {x});
  x = graph.add("class", ClassToken{}, {x});
  x = graph.add("positions", PositionEmbedding{17}, {x});
  x = attention_block(graph, x, "block0", false, 0.0);
  x = graph.add("norm", LayerNorm{}, {x});
  x = graph.add("take", TakeToken{0}, {x});
  x = graph.add("head", Linear{5, true, {}}, {x});
  graph.add("loss", CrossEntropy{}, {x});
  return graph;
}

TrainingSpec small_training(ModelGraph graph, Precision precision) {
  TrainingSpec spec;
  spec.data = std::make_shared<RandomSamples>(sample_of(graph));
  spec.graph = std::move(graph);
  spec.precision = precision;
  return replicated(std::move(spec), 1);
}

TrainingSpec replicated(TrainingSpec spec, int ranks, std::int64_t micro_batch, int micro_batches) {
  spec.use_plan(even_plan(
      spec.graph, {.data = ranks, .micro_batch = micro_batch, .micro_batches = micro_batches}));
  return spec;
}

}  // namespace heteroperf::test
