#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The inputs that a caller may change in a model; an absent value keeps the model's default.
struct ModelOptions {
  std::optional<std::int64_t> channels, height, width;  ///< for image models
  std::optional<std::int64_t> length;  ///< for token models: the tokens of one sample
  /// For models that put images into a text: a sample has from `fewest_images` to so many.
  std::optional<std::int64_t> images;
  std::int64_t fewest_images = 0;
  std::optional<std::int64_t> classes;  ///< labels of image models, vocabulary of token models
  double dropout = 0.0;                 ///< 0 leaves out the dropout nodes
};

/// A model that users can name. `build` is only called with complete, checked inputs.
struct ModelSpec {
  std::string name;
  std::string summary;
  /// One of resnet, vgg, vit, bert, gpt2, gpt3, llama, mpt, clip, vlm, vlm-duo, vilbert, and gpt
  /// for the suite's ladder.
  std::string family;
  std::vector<Input> inputs;  ///< the default sample; at most one of each kind
  std::int64_t classes = 0;   ///< default number of labels or vocabulary
  /// The samples per rank and step that suit the model on one CPU rank.
  std::int64_t micro_batch = 1;
  std::function<ModelGraph(const std::vector<Input>&, std::int64_t classes, double dropout)> build;

  /// Tells if its samples are of this kind alone.
  bool reads_only(InputKind kind) const { return inputs.size() == 1 && inputs[0].kind == kind; }
  /// Tells if its samples have one image, and not any number.
  bool takes_one_image() const {
    return inputs[0].kind == InputKind::images && inputs[0].items == 0;
  }
};

/// Returns every model, families together and each from small to large.
const std::vector<ModelSpec>& models();
/// Returns the sizes of the llm ladder, from small to large (family "gpt").
std::vector<std::string> llm_ladder();
/// Returns the sizes of the two-tower ladder, from small to large (family "clip").
std::vector<std::string> two_tower_ladder();
/// Returns the sizes of vision-language models, from small to large (family "vlm").
std::vector<std::string> vlm_ladder();
/// Returns the sizes of two streams with co-attention, from small to large (family "vilbert").
std::vector<std::string> co_attention_ladder();
/// Finds a model by its name. Throws UserError naming the nearest one.
const ModelSpec& find_model(const std::string& name);

/// Builds a model by name. Throws UserError, with all problems at once, for an option that the
/// model's input kind does not have or a value that does not fit.
ModelGraph build_model(const std::string& name, const ModelOptions& options = {});

}  // namespace heteroperf
