#include "workloads/workload_factories.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "metrics/base/error.hpp"
#include "workloads/data/generated_images.hpp"
#include "workloads/data/generated_scenes.hpp"
#include "workloads/data/generated_tokens.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph_memory.hpp"
#include "workloads/models/convolutional.hpp"
#include "workloads/models/models.hpp"

// Each factory chooses a size (by the scaling rule, if it is "auto"), opens the data, builds the
// graph for their samples, and then lets the request replace single values of the recipe.

namespace heteroperf {
namespace {

constexpr double longest_training_step_s = 2.0;
constexpr double longest_trial_step_s = 0.2;  // a trial must reach its first rung within seconds
constexpr double memory_share = 0.5;
constexpr std::array search_sizes{"w16", "w32", "w64", "w128", "w256", "w512"};
constexpr std::int64_t search_batch = 32;
constexpr const char* default_classifier = "resnet18";

/// Estimates memory and step time of a candidate on one rank.
ScalingChoice weigh(std::string size, const ModelGraph& graph, std::int64_t micro_batch,
                    OptimizerKind optimizer, const ScalingInput& machine) {
  const auto samples = static_cast<std::uint64_t>(micro_batch);
  ScalingChoice choice;
  choice.size = std::move(size);
  choice.memory_bytes = estimate_memory(graph, samples, Precision::fp32, optimizer).total().value();
  choice.step_s = strict_train_ops(graph, samples).to_double() / machine.ops_per_second;
  return choice;
}

/// Tells if a candidate takes at most its share of memory and its time per step.
bool fits(const ScalingChoice& choice, const ScalingInput& machine, double longest_step_s) {
  return choice.step_s <= longest_step_s &&
         static_cast<double>(choice.memory_bytes) <=
             memory_share * static_cast<double>(machine.memory_bytes);
}

/// Adds the numbers behind a choice to its reason.
void explain(ScalingChoice& choice, const ScalingInput& machine) {
  choice.reason += fmt::format(
      "{:.2f} s a step, were each rank to do a nominal {:.0f} GOPS ({:.0f} per core, not "
      "measured), "
      "and {:.2f} of {:.1f} GiB per rank",
      choice.step_s, machine.ops_per_second * 1e-9, nominal_core_ops_per_second * 1e-9,
      static_cast<double>(choice.memory_bytes) / (1 << 30),
      static_cast<double>(machine.memory_bytes) / (1 << 30));
}

/// Returns the largest candidate that fits; `names` lists them from small to large.
template <class Names, class Weigh>
ScalingChoice choose_largest(const Names& names, Weigh&& weigh_one, const ScalingInput& machine,
                             double longest_step_s) {
  ScalingChoice best;
  for (const auto& name : names) {
    ScalingChoice choice = weigh_one(name);
    const bool is_last = !fits(choice, machine, longest_step_s);
    if (!is_last || best.size.empty()) best = std::move(choice);
    if (is_last) break;
  }
  explain(best, machine);
  return best;
}

/// Returns the sample of generated images.
SampleSpec default_images() { return {.channels = 3, .height = 32, .width = 32, .classes = 10}; }

template <class T, class Asked>
void override_with(T& value, const std::optional<Asked>& asked) {
  if (asked) value = static_cast<T>(*asked);
}

/// Completes a workload: it opens its data, builds its graph for their samples, takes target and
/// unit from them, and the values that the request gives replace its own.
Workload assemble(Workload workload, const SampleSpec& wanted,
                  ModelGraph (*build)(const std::string& size, const SampleSpec& spec),
                  const WorkloadRequest& request) {
  workload.data = open_data({request.data, wanted, request.seed});
  const SampleSpec& sample = workload.data->spec();
  workload.graph = build(workload.size, sample);
  workload.freeze = request.freeze;
  if (!request.freeze.empty()) workload.graph = with_frozen(workload.graph, request.freeze);
  workload.target = target_on(*workload.data);
  workload.unit = unit_of(sample);
  workload.units_per_sample = sample.kind == SampleKind::tokens ? sample.length : 1;
  override_with(workload.micro_batch, request.micro_batch);
  override_with(workload.micro_batches, request.micro_batches);
  override_with(workload.recipe.kind, request.optimizer.name);
  override_with(workload.recipe.schedule, request.optimizer.schedule);
  override_with(workload.recipe.learning_rate, request.optimizer.learning_rate);
  override_with(workload.recipe.weight_decay, request.optimizer.weight_decay);
  override_with(workload.recipe.clip_norm, request.optimizer.clip_norm);
  override_with(workload.recipe.warmup_steps, request.optimizer.warmup_steps);
  workload.recipe.total_steps = request.total_steps;
  workload.precision = request.precision;
  return workload;
}

SampleKind samples_of(const ModelSpec& model) {
  if (model.family.starts_with("vlm")) return SampleKind::captions;
  if (model.family == "vilbert") return SampleKind::matches;
  if (model.inputs.size() > 1) return SampleKind::pairs;
  return model.reads_only(InputKind::tokens) ? SampleKind::tokens : SampleKind::images;
}

/// Finds a model that takes such samples. Throws UserError for another one.
const ModelSpec& model_for_samples(const std::string& name, SampleKind kind) {
  constexpr std::array is{"an image classifier",    "a language model",
                          "a model of two towers",  "a vision-language model",
                          "a model of two streams", "a regression of tokens"};
  const ModelSpec& model = find_model(name);
  if (samples_of(model) == kind) return model;
  throw UserError(fmt::format("'{}' is not {}", model.name, is[static_cast<std::size_t>(kind)]),
                  fmt::format("it takes {}", to_string(samples_of(model))),
                  "See `heteroperf list models`");
}

/// Returns a ladder's own word for a model: "nano" of two-tower-nano, "b32" of clip-vit-b-32.
std::string short_size(const std::string& model) {
  std::string size = model;
  for (const std::string prefix : {"two-tower-", "clip-vit-", "vlm-", "co-attention-"}) {
    if (size.starts_with(prefix)) size.erase(0, prefix.size());
  }
  std::erase(size, '-');
  return size;
}

/// Returns the mean loss of the best guess that does not look at the sample.
double guessed_loss(const SampleSpec& spec) {
  switch (spec.kind) {
    case SampleKind::pairs:
      return std::log(static_cast<double>(evaluated_pairs));
    case SampleKind::captions:
      return GeneratedScenes::caption_entropy() / GeneratedScenes::mean_caption_tokens();
    case SampleKind::matches:
      return std::log(2.0);
    default:
      return std::log(static_cast<double>(spec.classes));
  }
}

/// Language models train with AdamW and a cosine schedule.
OptimizerRecipe language_recipe() {
  return {.kind = OptimizerKind::adamw,
          .learning_rate = 1e-3,
          .weight_decay = 0.01,
          .schedule = LearningRateSchedule::cosine,
          .warmup_steps = 20,
          .final_fraction = 0.1};
}

/// Models of images and their texts train like language models, more slowly: at a higher rate they
/// learn what texts are like and never look at the image. Contrast learns best at half of that.
OptimizerRecipe image_text_recipe(SampleKind kind) {
  OptimizerRecipe recipe = language_recipe();
  recipe.learning_rate = kind == SampleKind::pairs ? 2.5e-4 : 5e-4;
  recipe.warmup_steps = 100;
  return recipe;
}

/// Image classifiers train with momentum and a cosine schedule.
OptimizerRecipe image_recipe() {
  return {.kind = OptimizerKind::sgd,
          .learning_rate = 0.05,
          .momentum = 0.9,
          .weight_decay = 5e-4,
          .schedule = LearningRateSchedule::cosine,
          .warmup_steps = 20};
}

/// Turns "w32" into 32. Throws UserError listing the sizes.
std::int64_t start_width(const std::string& name) {
  if (std::find(search_sizes.begin(), search_sizes.end(), name) == search_sizes.end()) {
    throw UserError(fmt::format("unknown size '{}' of automl-image", name),
                    fmt::format("one of auto {}", fmt::join(search_sizes, " ")));
  }
  return std::stoll(name.substr(1));
}

}  // namespace

const char* unit_of(const SampleSpec& spec) {
  constexpr std::array units{"image", "token", "pair", "pair", "pair", "sequence"};
  return spec.images > 0 ? "sample" : units[static_cast<std::size_t>(spec.kind)];
}

SampleSpec generated_sample(const std::string& name, std::optional<std::int64_t> length,
                            std::optional<std::int64_t> images) {
  if (name.empty()) return default_images();
  const ModelSpec& model = find_model(name);
  SampleSpec spec;
  spec.kind = samples_of(model);
  if (images && spec.kind != SampleKind::captions) {
    throw UserError(fmt::format("{} images in a sample of '{}'", *images, name),
                    "only a vision-language model puts images into a text",
                    "Leave --images out, or use a vlm");
  }
  if (spec.kind == SampleKind::images) return default_images();
  spec.classes = model.classes;
  for (const Input& input : model.inputs) {
    if (input.kind == InputKind::tokens) {
      spec.length = length.value_or(input.length);
      continue;
    }
    spec.images = images.value_or(input.items);
    spec.fewest_images = images ? 0 : input.fewest_items;
    spec.channels = input.channels;
    spec.height = input.height;
    spec.width = input.width;
  }
  const bool longer = images && !length && model.takes_one_image();
  if (longer) spec.length *= *images;
  // The patches of an image depend on the model.
  if (spec.kind == SampleKind::captions) {
    spec.image_places = sample_of(model_for(name, spec)).image_places;
  }
  return spec;
}

ModelGraph model_for(const std::string& name, const SampleSpec& spec) {
  ModelOptions options;
  options.classes = spec.classes;
  if (spec.has_text()) options.length = spec.length;
  if (spec.images > 0) options.images = spec.images;
  options.fewest_images = spec.fewest_images;
  if (spec.has_image()) {
    options.channels = spec.channels;
    options.height = spec.height;
    options.width = spec.width;
  }
  return build_model(name, options);
}

/// Returns the largest model of a ladder whose training fits.
ScalingChoice choose_from(const std::vector<std::string>& ladder, const ScalingInput& machine) {
  return choose_largest(
      ladder,
      [&](const std::string& name) {
        return weigh(name, build_model(name), find_model(name).micro_batch, OptimizerKind::adamw,
                     machine);
      },
      machine, longest_training_step_s);
}

ScalingChoice choose_llm_size(const ScalingInput& machine) {
  return choose_from(llm_ladder(), machine);
}

ScalingChoice choose_two_tower_size(const ScalingInput& machine) {
  return choose_from(two_tower_ladder(), machine);
}

ScalingChoice choose_vlm_size(const ScalingInput& machine) {
  return choose_from(vlm_ladder(), machine);
}

ScalingChoice choose_co_attention_size(const ScalingInput& machine) {
  return choose_from(co_attention_ladder(), machine);
}

ScalingChoice choose_image_size(const ScalingInput& machine) {
  ScalingChoice choice =
      weigh(default_classifier, model_for(default_classifier, default_images()),
            find_model(default_classifier).micro_batch, OptimizerKind::sgd, machine);
  choice.reason = "one size on every machine (--model names another): ";
  explain(choice, machine);
  return choice;
}

ScalingChoice choose_search_size(const ScalingInput& machine) {
  return choose_largest(
      search_sizes,
      [&](const std::string& size) {
        return weigh(size, search_start(size, default_images()), search_batch, OptimizerKind::sgd,
                     machine);
      },
      machine, longest_trial_step_s);
}

std::shared_ptr<const DataSource> describe_generated(const SampleSpec& wanted, std::uint64_t seed) {
  switch (wanted.kind) {
    case SampleKind::tokens:
      return std::make_shared<GeneratedTokens>(wanted, seed, GeneratedTokens::Successors::left_out);
    case SampleKind::pairs:
    case SampleKind::captions:
    case SampleKind::matches:
      return std::make_shared<GeneratedScenes>(wanted, seed);
    case SampleKind::regression:
      throw UserError("no data are generated for a regression of tokens", "",
                      "Give a source of your own.");
    case SampleKind::images:
      break;
  }
  return std::make_shared<GeneratedImages>(wanted, seed);
}

std::optional<QualityTarget> target_on(const DataSource& data) {
  return target_on(data.spec(), data.loss_floor(), data.error_floor());
}

std::optional<QualityTarget> target_on(const SampleSpec& spec, std::optional<double> loss_floor,
                                       std::optional<double> error_floor) {
  if (spec.kind == SampleKind::images) {
    const double best = 1.0 - error_floor.value_or(0.0);
    return QualityTarget{"accuracy", 0.5 * (1.0 / static_cast<double>(spec.classes) + best)};
  }
  if (!loss_floor) return std::nullopt;
  return QualityTarget{"loss", 0.5 * (guessed_loss(spec) + *loss_floor)};
}

ModelGraph search_start(const std::string& size, const SampleSpec& spec) {
  ModelGraph graph =
      resnet({.input = {InputKind::images, spec.channels, spec.height, spec.width, 0},
              .classes = spec.classes,
              .block = ResidualBlock::basic,
              .stem_width = start_width(size),
              .stages = {1, 1, 1}});
  graph.name = "resnet-" + size;
  return graph;
}

namespace {

/// Makes the training of a size of a ladder, by its name, also as a model, or the ladder's own word
/// for it.
Workload make_of_ladder(std::string name, const std::vector<std::string>& ladder, SampleKind kind,
                        const WorkloadRequest& request, const ScalingInput& machine) {
  std::string size = request.size.empty() ? request.model : request.size;
  if (size == "auto") size = choose_from(ladder, machine).size;
  const auto full = std::ranges::find(ladder, size, short_size);
  const ModelSpec& model = model_for_samples(full == ladder.end() ? size : *full, kind);
  return assemble(
      {.name = std::move(name),
       .size = model.name,
       .recipe = kind == SampleKind::tokens ? language_recipe() : image_text_recipe(kind),
       .micro_batch = model.micro_batch},
      generated_sample(model.name, request.sequence_length, request.images), model_for, request);
}

}  // namespace

Workload make_llm(const WorkloadRequest& request, const ScalingInput& machine) {
  return make_of_ladder("llm", llm_ladder(), SampleKind::tokens, request, machine);
}

Workload make_two_tower(const WorkloadRequest& request, const ScalingInput& machine) {
  return make_of_ladder("two-tower", two_tower_ladder(), SampleKind::pairs, request, machine);
}

Workload make_vlm(const WorkloadRequest& request, const ScalingInput& machine) {
  return make_of_ladder("vlm", vlm_ladder(), SampleKind::captions, request, machine);
}

Workload make_co_attention(const WorkloadRequest& request, const ScalingInput& machine) {
  return make_of_ladder("co-attention", co_attention_ladder(), SampleKind::matches, request,
                        machine);
}

Workload make_image(const WorkloadRequest& request, const ScalingInput&) {
  const ModelSpec& model = model_for_samples(request.model, SampleKind::images);
  return assemble({.name = "image",
                   .size = model.name,
                   .recipe = image_recipe(),
                   .micro_batch = model.micro_batch},
                  default_images(), model_for, request);
}

Workload make_automl_image(const WorkloadRequest& request, const ScalingInput& machine) {
  return assemble({.name = "automl-image",
                   .size = request.size == "auto" ? choose_search_size(machine).size : request.size,
                   .recipe = image_recipe(),
                   .micro_batch = search_batch},
                  default_images(), search_start, request);
}

}  // namespace heteroperf
