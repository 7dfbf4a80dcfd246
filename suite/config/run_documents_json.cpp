// Parts of a record that describe the run around its numbers: the machine with each rank's binding,
// the groups of a search, and the workload's settings as they were chosen. They are made when the
// journal opens and are copied from there into the record, so both say the same.
#include "suite/config/run_documents_json.hpp"

#include "metrics/base/strict_json.hpp"
#include "runners/cluster/cluster_json.hpp"

namespace heteroperf {
namespace {

/// One entry per rank of the run.
Json bindings(const Placement& placement) {
  Json list = Json::array();
  for (std::size_t rank = 0; rank < placement.bindings.size(); ++rank) {
    const RankBinding& binding = placement.bindings[rank];
    Json& entry = list.emplace_back(Json{{"rank", rank},
                                         {"host", binding.host},
                                         {"cpus", to_list(binding.cpus)},
                                         {"bound", binding.unbound.empty()}});
    if (!binding.unbound.empty()) entry["reason"] = binding.unbound;
    entry["device"] = binding.device;
    // A rank on the host's cores has no more to tell.
    if (!binding.gpu) continue;
    entry["gpu"] = *binding.gpu;
    entry["gpu_name"] = binding.device;
  }
  return list;
}

}  // namespace

std::string system_text(const Placement& placement, const std::string& libtorch_version) {
  Json system = to_json(probe_machine());
  system["process"] = to_json(probe_process());
  system["binding"] = bindings(placement);
  system["libtorch"] = libtorch_version;
  return system.dump();
}

std::string search_plan_text(int ranks, int groups) {
  // Groups have equal sizes and take consecutive ranks.
  const int each = ranks / groups;
  Json list = Json::array();
  for (int group = 0; group < groups; ++group) {
    Json members = Json::array();
    for (int rank = group * each; rank < (group + 1) * each; ++rank) members.push_back(rank);
    list.push_back({{"ranks", std::move(members)}});
  }
  Json plan = new_document("heteroperf-search-plan");
  plan.update({{"groups", std::move(list)}, {"within_a_group", "data-parallel"}});
  return plan.dump();
}

std::string workload_config_text(const Workload& workload, ProgramKind program) {
  const OptimizerRecipe& recipe = workload.recipe;
  Json config{{"size", workload.size}, {"model", workload.graph.name}};
  if (program == ProgramKind::search) {
    config["micro_batch"] = workload.micro_batch;
    config["micro_batches"] = workload.micro_batches;
  }
  config["optimizer"] = {{"name", to_string(recipe.kind)},
                         {"learning_rate", recipe.learning_rate},
                         {"schedule", to_string(recipe.schedule)},
                         {"warmup_steps", recipe.warmup_steps},
                         {"total_steps", recipe.total_steps},
                         {"final_fraction", recipe.final_fraction},
                         {"momentum", recipe.momentum},
                         {"weight_decay", recipe.weight_decay},
                         {"decay_matrices_only", recipe.decay_matrices_only},
                         {"beta1", recipe.beta1},
                         {"beta2", recipe.beta2},
                         {"epsilon", recipe.epsilon},
                         {"clip_norm", recipe.clip_norm}};
  return config.dump();
}

}  // namespace heteroperf
