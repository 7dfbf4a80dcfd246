#include "workloads/models/models.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "workloads/models/convolutional.hpp"
#include "workloads/models/transformers.hpp"

// The table at the end of the unnamed namespace lists every model that users can name. The
// functions before it turn the few numbers in which the members of a family differ into a
// ModelSpec, whose `build` makes the graph for any input size.

namespace heteroperf {
namespace {

constexpr std::int64_t imagenet_side = 224, imagenet_classes = 1000;

Input images(std::int64_t side, std::int64_t number = 0) {
  return {InputKind::images, 3, side, side, 0, number, number};
}
Input tokens(std::int64_t length) { return {InputKind::tokens, 0, 0, 0, length}; }

/// Residual networks differ in their block, its stride, and the blocks per stage.
ModelSpec resnet_spec(const char* name, const char* summary, ResidualBlock block,
                      const std::vector<std::int64_t>& stages,
                      StridePlace place = StridePlace::conv3x3) {
  const auto build = [=](const std::vector<Input>& inputs, std::int64_t classes, double dropout) {
    return resnet({.input = inputs[0],
                   .classes = classes,
                   .block = block,
                   .stride_place = place,
                   .stages = stages,
                   .dropout = dropout});
  };
  return {name, summary, "resnet", {images(imagenet_side)}, imagenet_classes, 32, build};
}

/// There is one size of ViT, whose numbers are the defaults of VitShape.
ModelGraph vit_base(const std::vector<Input>& inputs, std::int64_t classes, double dropout) {
  return vit({.input = inputs[0], .classes = classes, .dropout = dropout});
}

/// There is one size of BERT, whose numbers are the defaults of BertShape.
ModelGraph bert_base(const std::vector<Input>& inputs, std::int64_t classes, double dropout) {
  return bert({.vocabulary = classes, .length = inputs[0].length, .dropout = dropout});
}

struct TowersSize {
  std::int64_t patch;
  TowerShape vision, text;
  std::int64_t embedding;
};

/// Makes two towers for these images and texts of `length` tokens.
ModelSpec towers_spec(const char* name, const std::string& summary, std::int64_t side,
                      std::int64_t length, std::int64_t vocabulary, std::int64_t micro_batch,
                      const TowersSize& size) {
  const auto build = [=](const std::vector<Input>& inputs, std::int64_t words, double dropout) {
    return two_towers({.image = inputs[0],
                       .text_input = inputs[1],
                       .patch = size.patch,
                       .vision = size.vision,
                       .text = size.text,
                       .vocabulary = words,
                       .embedding = size.embedding,
                       .dropout = dropout});
  };
  return {name, summary, "clip", {images(side), tokens(length)}, vocabulary, micro_batch, build};
}

/// CLIP's sizes as open_clip has them (Ilharco et al., doi:10.5281/zenodo.5143773): texts of 77
/// tokens, images of 224 pixels a side.
ModelSpec clip(const char* name, const char* summary, const TowersSize& size) {
  return towers_spec(name, summary, imagenet_side, 77, 49408, 8, size);
}

/// The sizes below CLIP's, for images and captions of generated scenes. A patch lies within one of
/// the scene's nine cells.
ModelSpec two_tower(const char* size, std::int64_t side, const TowersSize& towers) {
  return towers_spec(size, fmt::format("two-tower ladder, images of {}x{}", side, side), side, 16,
                     32, 64, towers);
}

/// Makes a vision-language model for images of `side` pixels, of which a sample has so many, 0: one
/// that is no item; the length of its text and its vocabulary are defaults.
ModelSpec vlm_spec(const char* name, const std::string& summary, std::int64_t side,
                   std::int64_t patch, const TowerShape& vision, const GptShape& text,
                   std::int64_t micro_batch, std::int64_t number = 0,
                   const std::optional<TowerShape>& second = {}) {
  const auto build = [=](const std::vector<Input>& inputs, std::int64_t words, double dropout) {
    GptShape asked = text;
    asked.length = asked.positions = inputs[1].length;
    asked.vocabulary = words;
    asked.dropout = dropout;
    return vision_language(
        {.image = inputs[0], .patch = patch, .vision = vision, .second = second, .text = asked});
  };
  const std::vector<Input> sample{images(side, number), tokens(text.length)};
  return {name, summary, "vlm", sample, text.vocabulary, micro_batch, build};
}

/// Makes two streams of `layers` that exchange after every two, for these images and texts of
/// `length` tokens.
ModelSpec streams_spec(const char* name, const std::string& summary, std::int64_t side,
                       std::int64_t length, std::int64_t vocabulary, std::int64_t micro_batch,
                       const TowersSize& size) {
  const auto build = [=](const std::vector<Input>& inputs, std::int64_t words, double dropout) {
    return co_attention({.image = inputs[0],
                         .text_input = inputs[1],
                         .patch = size.patch,
                         .vision = size.vision,
                         .text = size.text,
                         .vocabulary = words,
                         .embedding = size.embedding,
                         .dropout = dropout});
  };
  const std::vector<Input> sample{images(side), tokens(length)};
  return {name, summary, "vilbert", sample, vocabulary, micro_batch, build};
}

/// The sizes of two streams for images and captions of generated scenes. A patch lies within one of
/// the scene's nine cells.
ModelSpec streams(const char* name, std::int64_t side, std::int64_t micro_batch,
                  const TowersSize& size) {
  return streams_spec(name, fmt::format("co-attention ladder, images of {}x{}", side, side), side,
                      16, 32, micro_batch, size);
}

/// Makes a decoder of this shape, whose length and vocabulary are defaults.
ModelSpec decoder_spec(const char* name, const std::string& summary, const char* family,
                       std::int64_t micro_batch, const GptShape& shape) {
  const auto build = [=](const std::vector<Input>& inputs, std::int64_t classes, double dropout) {
    GptShape asked = shape;
    asked.length = inputs[0].length;
    asked.vocabulary = classes;
    asked.dropout = dropout;
    return gpt(asked);
  };
  return {name, summary, family, {tokens(shape.length)}, shape.vocabulary, micro_batch, build};
}

/// Makes the shape of a decoder whose samples are as long as its context.
GptShape gpt_shape(std::int64_t layers, std::int64_t width, std::int64_t heads,
                   std::int64_t context, std::int64_t vocabulary) {
  GptShape shape;
  shape.layers = layers;
  shape.width = width;
  shape.heads = heads;
  shape.length = shape.positions = context;
  shape.vocabulary = vocabulary;
  return shape;
}

/// GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020, arXiv 2005.14165, table 2.1) tie the
/// head's weight to the embedding's.
ModelSpec gpt_published(const char* name, const char* summary, const char* family,
                        std::int64_t layers, std::int64_t width, std::int64_t heads,
                        std::int64_t context) {
  GptShape shape = gpt_shape(layers, width, heads, context, 50257);
  shape.head = HeadKind::tied;
  return decoder_spec(name, summary, family, 1, shape);
}

struct LlamaSize {
  std::int64_t layers, width, heads, kv_heads, mlp_width, vocabulary, context;
  double rotary_base, norm_eps;
};

/// LLaMA (Touvron et al., arXiv 2302.13971, 2307.09288; Dubey et al., arXiv 2407.21783).
GptShape llama_shape(const LlamaSize& size) {
  GptShape shape = gpt_shape(size.layers, size.width, size.heads, size.context, size.vocabulary);
  shape.kv_heads = size.kv_heads;
  shape.mlp_width = size.mlp_width;
  shape.norm = NormKind::rms_norm;
  shape.norm_eps = size.norm_eps;
  shape.mlp = MlpKind::swiglu;
  shape.position_kind = PositionKind::rotary;
  shape.rotary_base = size.rotary_base;
  shape.bias = false;
  return shape;
}

constexpr LlamaSize llama_7b{32, 4096, 32, 32, 11008, 32000, 2048, 1e4, 1e-6};
constexpr LlamaSize llama_7b_long{32, 4096, 32, 32, 11008, 32000, 8192, 1e4, 1e-6};

ModelSpec llama(const char* name, const char* summary, const LlamaSize& size) {
  return decoder_spec(name, summary, "llama", 1, llama_shape(size));
}

/// The sizes of vision-language models for images and captions of generated scenes: 16 tokens or
/// little more behind the patches of an image, each of which lies within one of the scene's nine
/// cells. Four divides the length, so that two context-parallel ranks can share it.
ModelSpec vlm(const char* name, std::int64_t side, std::int64_t patch, const TowerShape& vision,
              const TowerShape& text, std::int64_t micro_batch,
              const std::optional<TowerShape>& second = {}) {
  const std::int64_t patches = (side / patch) * (side / patch);
  GptShape shape = gpt_shape(text.layers, text.width, text.heads, (patches + 19) / 4 * 4, 32);
  shape.mlp = MlpKind::gelu_erf;
  ModelSpec spec =
      vlm_spec(name, fmt::format("vlm ladder, images of {}x{}, {} places", side, side, patches),
               side, patch, vision, shape, micro_batch, 0, second);
  if (second) {
    spec.summary =
        fmt::format("two image encoders, images of {}x{}, {} places", side, side, patches);
    spec.family = "vlm-duo";
  }
  return spec;
}

/// MosaicML's MPT has ALiBi, no bias anywhere and a tied head.
ModelSpec mpt_7b() {
  GptShape shape = gpt_shape(32, 4096, 32, 2048, 50432);
  shape.head = HeadKind::tied;
  shape.norm = NormKind::layer_norm_no_bias;
  shape.mlp = MlpKind::gelu_erf;
  shape.position_kind = PositionKind::alibi;
  shape.bias = false;
  return decoder_spec("mpt-7b", "MPT 7B: ALiBi, no biases, tied head", "mpt", 1, shape);
}

/// The suite's own GPT form; a sample may be no longer than the context.
ModelSpec ladder(const char* name, std::int64_t layers, std::int64_t width, std::int64_t heads,
                 std::int64_t context, std::int64_t vocabulary, std::int64_t micro_batch) {
  GptShape shape = gpt_shape(layers, width, heads, context, vocabulary);
  shape.mlp = MlpKind::gelu_erf;
  const std::string summary =
      fmt::format("llm ladder: GPT, {} blocks of width {}, {} heads, context {}", layers, width,
                  heads, context);
  return decoder_spec(name, summary, "gpt", micro_batch, shape);
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
      {"vgg16",
       "VGG-16",
       "vgg",
       {images(imagenet_side)},
       imagenet_classes,
       8,
       [](const std::vector<Input>& inputs, std::int64_t classes, double dropout) {
         return vgg16(inputs[0], classes, dropout);
       }},
      {"vit-b-16", "ViT-B/16", "vit", {images(imagenet_side)}, imagenet_classes, 8, vit_base},
      {"bert-base", "BERT-base, encoder and pooler", "bert", {tokens(512)}, 30522, 4, bert_base},
      gpt_published("gpt2", "GPT-2 124M, tied head", "gpt2", 12, 768, 12, 1024),
      gpt_published("gpt2-medium", "GPT-2 355M, tied head", "gpt2", 24, 1024, 16, 1024),
      gpt_published("gpt2-large", "GPT-2 774M, tied head", "gpt2", 36, 1280, 20, 1024),
      gpt_published("gpt2-xl", "GPT-2 1.5B, tied head", "gpt2", 48, 1600, 25, 1024),
      gpt_published("gpt3-175b", "GPT-3 175B, dense attention, tied head", "gpt3", 96, 12288, 96,
                    2048),
      llama("llama-7b", "LLaMA 7B", llama_7b),
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
      two_tower("two-tower-nano", 36, {12, {2, 128, 4}, {2, 128, 4}, 64}),
      two_tower("two-tower-micro", 36, {12, {4, 256, 4}, {4, 192, 4}, 128}),
      two_tower("two-tower-mini", 72, {12, {6, 384, 6}, {6, 256, 4}, 256}),
      two_tower("two-tower-small", 144, {16, {12, 512, 8}, {8, 384, 6}, 384}),
      clip("clip-vit-b-32", "CLIP, two towers, ViT-B/32", {32, {12, 768, 12}, {12, 512, 8}, 512}),
      clip("clip-vit-b-16", "CLIP, two towers, ViT-B/16", {16, {12, 768, 12}, {12, 512, 8}, 512}),
      clip("clip-vit-l-14", "CLIP, two towers, ViT-L/14", {14, {24, 1024, 16}, {12, 768, 12}, 768}),
      vlm("vlm-nano", 36, 12, {2, 128, 4}, {2, 128, 4}, 32),
      vlm("vlm-micro", 36, 12, {4, 192, 4}, {4, 256, 4}, 32),
      vlm("vlm-mini", 72, 12, {6, 384, 6}, {6, 384, 6}, 16),
      vlm("vlm-small", 144, 16, {12, 512, 8}, {12, 768, 12}, 8),
      vlm_spec("vlm-7b", "LLaVA's form: ViT-L/14 at 336 pixels, two projections, LLaMA 7B", 336, 14,
               {24, 1024, 16}, llama_shape(llama_7b), 1),
      vlm_spec("vlm-13b",
               "24 images of 224 pixels, each 256 places in 8192 tokens: an encoder of 6 billion "
               "parameters, LLaMA 7B",
               224, 14, {53, 3072, 24}, llama_shape(llama_7b_long), 1, 24),
      vlm("vlm-duo-nano", 36, 12, {2, 128, 4}, {2, 128, 4}, 32, TowerShape{1, 64, 4}),
      vlm("vlm-duo-micro", 36, 12, {4, 192, 4}, {4, 256, 4}, 32, TowerShape{3, 128, 4}),
      streams("co-attention-nano", 36, 64, {12, {4, 128, 4}, {4, 96, 4}, 64}),
      streams("co-attention-micro", 36, 32, {12, {6, 256, 4}, {6, 192, 4}, 128}),
      streams("co-attention-mini", 72, 32, {12, {8, 384, 6}, {8, 256, 4}, 256}),
      streams("co-attention-small", 144, 16, {16, {12, 512, 8}, {12, 384, 6}, 384}),
      streams_spec("co-attention-base",
                   "two streams of ViLBERT's widths, an exchange after every two", imagenet_side,
                   36, 30522, 8, {32, {12, 1024, 8}, {12, 768, 12}, 1024}),
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

/// An option that replaces a field of the default input, and the kind of input that has it.
struct InputOption {
  const char* name;
  InputKind kind;
  std::int64_t Input::*field;
  std::optional<std::int64_t> ModelOptions::*value;
};
constexpr InputOption input_options[] = {
    {"channels", InputKind::images, &Input::channels, &ModelOptions::channels},
    {"height", InputKind::images, &Input::height, &ModelOptions::height},
    {"width", InputKind::images, &Input::width, &ModelOptions::width},
    {"images", InputKind::images, &Input::items, &ModelOptions::images},
    {"length", InputKind::tokens, &Input::length, &ModelOptions::length}};

/// Returns the model's default inputs with the options in place. Throws UserError with all options
/// that belong to a kind of input that it does not read, and all values below 1.
std::vector<Input> inputs_for(const ModelSpec& spec, const ModelOptions& options) {
  std::vector<Input> inputs = spec.inputs;
  ProblemList problems;
  for (const InputOption& option : input_options) {
    const std::optional<std::int64_t>& value = options.*option.value;
    if (!value) continue;
    const auto input = std::ranges::find(inputs, option.kind, &Input::kind);
    if (input == inputs.end()) {
      problems.add(
          fmt::format("model '{}' has no option '{}'", spec.name, option.name),
          option.kind == InputKind::tokens ? "it reads images" : "it reads token sequences");
      continue;
    }
    if (*value < 1) {
      problems.add(fmt::format("{} of model '{}' is {}", option.name, spec.name, *value),
                   "must be at least 1");
    }
    (*input).*option.field = *value;
  }
  problems.throw_if_any();
  for (Input& input : inputs) {
    if (options.images && input.kind == InputKind::images) {
      input.fewest_items = options.fewest_images;
    }
  }
  return inputs;
}

/// Lists a family in the order of the table.
std::vector<std::string> family_names(const char* family) {
  std::vector<std::string> names;
  for (const ModelSpec& spec : models()) {
    if (spec.family == family) names.push_back(spec.name);
  }
  return names;
}

}  // namespace

const std::vector<ModelSpec>& models() {
  static const std::vector<ModelSpec> table = make_models();
  return table;
}

std::vector<std::string> llm_ladder() { return family_names("gpt"); }
std::vector<std::string> two_tower_ladder() { return family_names("clip"); }
std::vector<std::string> vlm_ladder() { return family_names("vlm"); }
std::vector<std::string> co_attention_ladder() { return family_names("vilbert"); }

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
  ModelGraph graph = spec.build(inputs_for(spec, options), options.classes.value_or(spec.classes),
                                options.dropout);
  graph.name = spec.name;
  return graph;
}

}  // namespace heteroperf
