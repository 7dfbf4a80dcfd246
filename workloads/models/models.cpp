#include "workloads/models/models.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "workloads/models/convolutional.hpp"
#include "workloads/models/transformers.hpp"

// The table at the end of the unnamed namespace lists every model that users can name. The
// functions before it turn the few numbers in which the members of a family differ into a
// ModelSpec, whose `build` makes the graph for any input size.

namespace heteroperf {
namespace {

using Stages = std::vector<std::int64_t>;

constexpr std::int64_t imagenet_side = 224, imagenet_classes = 1000;

Input images(std::int64_t side) { return {InputKind::images, 3, side, side, 0}; }
Input tokens(std::int64_t length) { return {InputKind::tokens, 0, 0, 0, length}; }

/// Residual networks differ in their block, its stride, and the blocks per stage.
ModelSpec resnet_spec(std::string name, std::string summary, ResidualBlock block, Stages stages,
                      StridePlace place = StridePlace::conv3x3) {
  const auto build = [=](const Input& input, std::int64_t classes, double dropout) {
    ResnetShape shape;
    shape.channels = input.channels;
    shape.height = input.height;
    shape.width = input.width;
    shape.classes = classes;
    shape.block = block;
    shape.stride_place = place;
    shape.stages = stages;
    shape.dropout = dropout;
    return resnet(shape);
  };
  return {std::move(name),
          std::move(summary),
          "resnet",
          images(imagenet_side),
          imagenet_classes,
          32,
          build};
}

/// There is one size of ViT, whose numbers are the defaults of VitShape.
ModelSpec vit_spec(std::string name, std::string summary) {
  const auto build = [](const Input& input, std::int64_t classes, double dropout) {
    VitShape shape;
    shape.input = input;
    shape.classes = classes;
    shape.dropout = dropout;
    return vit(shape);
  };
  return {std::move(name),
          std::move(summary),
          "vit",
          images(imagenet_side),
          imagenet_classes,
          8,
          build};
}

/// There is one size of BERT, whose numbers are the defaults of BertShape.
ModelSpec bert_spec(std::string name, std::string summary) {
  const auto build = [](const Input& input, std::int64_t classes, double dropout) {
    BertShape shape;
    shape.length = input.length;
    shape.vocabulary = classes;
    shape.dropout = dropout;
    return bert(shape);
  };
  return {std::move(name), std::move(summary), "bert", tokens(512), 30522, 4, build};
}

/// Makes a decoder: `shape` holds everything but the sample's length, the vocabulary and dropout.
ModelSpec decoder_spec(std::string name, std::string summary, std::string family,
                       std::int64_t length, std::int64_t vocabulary, std::int64_t micro_batch,
                       const GptShape& shape) {
  const auto build = [=](const Input& input, std::int64_t classes, double dropout) {
    GptShape asked = shape;
    asked.length = input.length;
    asked.vocabulary = classes;
    asked.dropout = dropout;
    return gpt(asked);
  };
  return {std::move(name),
          std::move(summary),
          std::move(family),
          tokens(length),
          vocabulary,
          micro_batch,
          build};
}

/// GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020, arXiv 2005.14165, table 2.1) tie the
/// head's weight to the embedding's.
ModelSpec gpt_published(std::string name, std::string summary, std::string family,
                        std::int64_t layers, std::int64_t width, std::int64_t heads,
                        std::int64_t context) {
  GptShape shape;
  shape.layers = layers;
  shape.width = width;
  shape.heads = heads;
  shape.positions = context;
  shape.head = HeadKind::tied;
  return decoder_spec(std::move(name), std::move(summary), std::move(family), context, 50257, 1,
                      shape);
}

struct LlamaSize {
  std::int64_t layers, width, heads, kv_heads, mlp_width, vocabulary, context;
  double rotary_base, norm_eps;
};

/// LLaMA (Touvron et al., arXiv 2302.13971, 2307.09288; Dubey et al., arXiv 2407.21783).
ModelSpec llama(std::string name, std::string summary, const LlamaSize& size) {
  GptShape shape;
  shape.layers = size.layers;
  shape.width = size.width;
  shape.heads = size.heads;
  shape.kv_heads = size.kv_heads;
  shape.mlp_width = size.mlp_width;
  shape.norm = NormKind::rms_norm;
  shape.norm_eps = size.norm_eps;
  shape.mlp = MlpKind::swiglu;
  shape.position_kind = PositionKind::rotary;
  shape.rotary_base = size.rotary_base;
  shape.bias = false;
  return decoder_spec(std::move(name), std::move(summary), "llama", size.context, size.vocabulary,
                      1, shape);
}

/// MosaicML's MPT has ALiBi, no bias anywhere and a tied head.
ModelSpec mpt_7b() {
  GptShape shape;
  shape.layers = 32;
  shape.width = 4096;
  shape.heads = 32;
  shape.head = HeadKind::tied;
  shape.norm = NormKind::layer_norm_no_bias;
  shape.mlp = MlpKind::gelu_erf;
  shape.position_kind = PositionKind::alibi;
  shape.bias = false;
  return decoder_spec("mpt-7b", "MPT 7B: ALiBi, no biases, tied head", "mpt", 2048, 50432, 1,
                      shape);
}

/// The suite's own GPT form; a sample may be no longer than the context.
ModelSpec ladder(std::string name, std::int64_t layers, std::int64_t width, std::int64_t heads,
                 std::int64_t context, std::int64_t vocabulary, std::int64_t micro_batch) {
  GptShape shape;
  shape.layers = layers;
  shape.mlp = MlpKind::gelu_erf;
  shape.width = width;
  shape.heads = heads;
  shape.positions = context;
  std::string summary = fmt::format("llm ladder: GPT, {} blocks of width {}, {} heads, context {}",
                                    layers, width, heads, context);
  return decoder_spec(std::move(name), std::move(summary), "gpt", context, vocabulary, micro_batch,
                      shape);
}

/// GPT-2's 50257 tokens rounded up to a multiple of 128, which tensor parallel ranks can share.
constexpr std::int64_t padded_vocabulary = 50304;

std::vector<ModelSpec> make_models() {
  using enum ResidualBlock;
  return {
      resnet_spec("resnet18", "ResNet-18", basic, {2, 2, 2, 2}),
      resnet_spec("resnet34", "ResNet-34", basic, {3, 4, 6, 3}),
      resnet_spec("resnet50", "ResNet-50 v1.5 (stride in the 3x3)", bottleneck, {3, 4, 6, 3}),
      resnet_spec("resnet101", "ResNet-101 v1.5", bottleneck, {3, 4, 23, 3}),
      resnet_spec("resnet152", "ResNet-152 v1.5", bottleneck, {3, 8, 36, 3}),
      resnet_spec("resnet50-v1", "ResNet-50 v1 (stride in the first 1x1)", bottleneck, {3, 4, 6, 3},
                  StridePlace::first_conv1x1),
      {"vgg16", "VGG-16", "vgg", images(imagenet_side), imagenet_classes, 8, vgg16},
      vit_spec("vit-b-16", "ViT-B/16"),
      bert_spec("bert-base", "BERT-base, encoder and pooler"),
      gpt_published("gpt2", "GPT-2 124M, tied head", "gpt2", 12, 768, 12, 1024),
      gpt_published("gpt2-medium", "GPT-2 355M, tied head", "gpt2", 24, 1024, 16, 1024),
      gpt_published("gpt2-large", "GPT-2 774M, tied head", "gpt2", 36, 1280, 20, 1024),
      gpt_published("gpt2-xl", "GPT-2 1.5B, tied head", "gpt2", 48, 1600, 25, 1024),
      gpt_published("gpt3-175b", "GPT-3 175B, dense attention, tied head", "gpt3", 96, 12288, 96,
                    2048),
      llama("llama-7b", "LLaMA 7B", {32, 4096, 32, 32, 11008, 32000, 2048, 1e4, 1e-6}),
      llama("llama-13b", "LLaMA 13B", {40, 5120, 40, 40, 13824, 32000, 2048, 1e4, 1e-6}),
      llama("llama-33b", "LLaMA 33B", {60, 6656, 52, 52, 17920, 32000, 2048, 1e4, 1e-6}),
      llama("llama-65b", "LLaMA 65B", {80, 8192, 64, 64, 22016, 32000, 2048, 1e4, 1e-5}),
      llama("llama2-70b", "Llama 2 70B, grouped queries",
            {80, 8192, 64, 8, 28672, 32000, 4096, 1e4, 1e-5}),
      llama("llama3-8b", "Llama 3 8B, grouped queries",
            {32, 4096, 32, 8, 14336, 128256, 8192, 5e5, 1e-5}),
      llama("llama3-70b", "Llama 3 70B, grouped queries",
            {80, 8192, 64, 8, 28672, 128256, 8192, 5e5, 1e-5}),
      llama("llama3-405b", "Llama 3.1 405B, grouped queries",
            {126, 16384, 128, 8, 53248, 128256, 8192, 5e5, 1e-5}),
      mpt_7b(),
      ladder("nano", 2, 128, 4, 128, 256, 16),
      ladder("micro", 4, 256, 4, 128, 512, 16),
      ladder("mini", 6, 384, 6, 256, 1024, 8),
      ladder("small", 12, 768, 12, 1024, padded_vocabulary, 4),
      ladder("medium", 24, 1024, 16, 1024, padded_vocabulary, 2),
      ladder("large", 36, 1280, 20, 1024, padded_vocabulary, 1),
      ladder("xl", 48, 1600, 25, 1024, padded_vocabulary, 1),
      ladder("2.7b", 32, 2560, 32, 2048, padded_vocabulary, 1),
      ladder("6.7b", 32, 4096, 32, 2048, padded_vocabulary, 1),
      ladder("13b", 40, 5120, 40, 2048, padded_vocabulary, 1),
      ladder("30b", 48, 7168, 56, 2048, padded_vocabulary, 1),
      ladder("66b", 64, 9216, 72, 2048, padded_vocabulary, 1),
      ladder("175b", 96, 12288, 96, 2048, padded_vocabulary, 1),
  };
}

/// Replaces fields of the default input by the options that are given. It notes options that belong
/// to the other kind of input.
class InputChanges {
 public:
  explicit InputChanges(const ModelSpec& spec) : spec_(spec), input_(spec.input) {}

  /// Takes an option over, or notes why the model cannot have it.
  void apply(const char* option, InputKind kind, std::int64_t Input::*field,
             const std::optional<std::int64_t>& value) {
    if (!value) return;
    const char* has = spec_.input.kind == InputKind::images ? "images" : "token sequences";
    if (spec_.input.kind != kind) {
      problems_.add(fmt::format("model '{}' has no option '{}'", spec_.name, option),
                    fmt::format("it reads {}", has));
    } else if (*value < 1) {
      problems_.add(fmt::format("{} of model '{}' is {}", option, spec_.name, *value),
                    "must be at least 1");
    }
    input_.*field = *value;
  }

  Input finish() const {
    problems_.throw_if_any();
    return input_;
  }

 private:
  const ModelSpec& spec_;
  Input input_;
  ProblemList problems_;
};

}  // namespace

const std::vector<ModelSpec>& models() {
  static const std::vector<ModelSpec> table = make_models();
  return table;
}

std::vector<std::string> llm_ladder() {
  std::vector<std::string> names;
  for (const ModelSpec& spec : models()) {
    if (spec.family == "gpt") names.push_back(spec.name);
  }
  return names;
}

const ModelSpec& find_model(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelSpec& spec : models()) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  throw UserError(fmt::format("there is no model '{}'", name), {},
                  suggest_name(name, names, "See: heteroperf list models."));
}

ModelGraph build_model(const std::string& name, const ModelOptions& options) {
  const ModelSpec& spec = find_model(name);
  InputChanges changes(spec);
  changes.apply("channels", InputKind::images, &Input::channels, options.channels);
  changes.apply("height", InputKind::images, &Input::height, options.height);
  changes.apply("width", InputKind::images, &Input::width, options.width);
  changes.apply("length", InputKind::tokens, &Input::length, options.length);
  ModelGraph graph =
      spec.build(changes.finish(), options.classes.value_or(spec.classes), options.dropout);
  graph.name = spec.name;
  return graph;
}

}  // namespace heteroperf
