#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workloads/model_graph.hpp"

namespace heteroperf {

/// What a caller may change of a model's default input; an absent value keeps the default.
struct ModelOptions {
  std::optional<std::int64_t> channels, height, width;  ///< image models
  std::optional<std::int64_t> length;                   ///< token models: tokens of one sample
  std::optional<std::int64_t> classes;  ///< labels of image models, vocabulary of token models
  double dropout = 0.0;                 ///< 0: no dropout nodes
};

/// One model users can name. `build` is only called with a complete, checked `Input`.
struct ModelSpec {
  std::string name;
  std::string summary;
  std::string family;  ///< resnet, vgg, vit, bert, gpt2, gpt3, llama, mpt; gpt: the suite's ladder
  Input input;         ///< the default sample
  std::int64_t classes = 0;  ///< default labels or vocabulary
  /// Samples per rank and step that suit the model on one CPU rank.
  std::int64_t micro_batch = 1;
  std::function<ModelGraph(const Input&, std::int64_t classes, double dropout)> build;
};

/// Every model, families together and each from small to large.
const std::vector<ModelSpec>& models();
/// The sizes of the llm ladder, from small to large (family "gpt").
std::vector<std::string> llm_ladder();
/// Throws UserError naming the nearest model.
const ModelSpec& find_model(const std::string& name);

/// Builds a model by name. Throws UserError, all problems at once, for an option that the model's
/// input kind does not have or a value that does not fit.
ModelGraph build_model(const std::string& name, const ModelOptions& options = {});

}  // namespace heteroperf
