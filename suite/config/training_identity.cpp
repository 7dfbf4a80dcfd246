// A training is the same as another when these fields agree: the model graph, the data, the
// precision, the samples of a step, the seed and the optimizer's recipe. Ranks, plan, micro-batches
// and duration are no part of it, because they change only when and where numbers are computed. A
// run states its identity twice: before it starts, from the workload that was made, and afterwards,
// from the workload line of its journal. Both use the same text of the recipe, so they compare as
// texts.
#include "suite/config/training_identity.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

#include "metrics/base/error.hpp"
#include "metrics/base/strict_json.hpp"
#include "suite/config/run_documents_json.hpp"

namespace heteroperf {
namespace {

/// The value of a field; nothing where there is none of that name.
std::optional<std::string> value_in(const TrainingIdentity& fields, const std::string& name) {
  const auto place = std::find_if(fields.begin(), fields.end(),
                                  [&](const IdentityField& field) { return field.name == name; });
  return place == fields.end() ? std::nullopt : std::optional(place->value);
}

/// The optimizer recipe, a field per key; a constant rate has no last step.
TrainingIdentity with_recipe(TrainingIdentity fields, const std::string& workload_config) {
  const Json config = Json::parse(workload_config, nullptr, false);
  if (!config.is_object() || !config.contains("optimizer")) return fields;
  const Json& recipe = config["optimizer"];
  if (!recipe.is_object()) return fields;
  // A constant rate does not depend on the length of a training.
  const bool constant = recipe.value("schedule", Json()) == "constant";
  for (const auto& [key, value] : recipe.items()) {
    if (constant && key == "total_steps") continue;
    fields.push_back({"optimizer." + key, value.dump()});
  }
  return fields;
}

std::string seed_text(const WorkloadEvent& workload) {
  for (const auto& [name, seed] : workload.seeds) {
    if (name == "run") return std::to_string(seed);
  }
  return {};
}

}  // namespace

std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except) {
  TrainingIdentity fields = a;
  // A field that one side lacks differs from any value.
  std::copy_if(b.begin(), b.end(), std::back_inserter(fields),
               [&](const IdentityField& field) { return !value_in(a, field.name); });
  std::vector<IdentityDifference> identity_differences;
  for (const auto& [name, value] : fields) {
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    const std::string in_a = value_in(a, name).value_or(""), in_b = value_in(b, name).value_or("");
    if (in_a != in_b) identity_differences.push_back({name, in_a, in_b});
  }
  return identity_differences;
}

TrainingIdentity training_identity(const WorkloadEvent& workload) {
  // Only a fixed model writes its graph and its samples per step into that line.
  if (workload.graph.text.empty() || !workload.samples_per_step) {
    throw UserError(workload.name + " has no one model that its runs train",
                    "a search trains a model per trial",
                    "Runs of `image` and `llm` can be used here.");
  }
  return with_recipe({{"workload", workload.name},
                      {"graph_hash", workload.graph_hash},
                      {"data_fingerprint", workload.data_fingerprint},
                      {"precision", workload.precision},
                      {"samples_per_step", std::to_string(*workload.samples_per_step)},
                      {"seed", seed_text(workload)}},
                     workload.config.text);
}

TrainingIdentity training_identity(const Workload& workload, std::uint64_t samples_per_step,
                                   std::uint64_t seed) {
  return with_recipe({{"workload", workload.name},
                      {"graph_hash", workload.graph.hash()},
                      {"data_fingerprint", workload.data->fingerprint()},
                      {"precision", to_string(workload.precision)},
                      {"samples_per_step", std::to_string(samples_per_step)},
                      {"seed", std::to_string(seed)}},
                     workload_config_text(workload));
}

}  // namespace heteroperf
