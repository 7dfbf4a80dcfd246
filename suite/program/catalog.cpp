// The list of workloads. A new one is a line here: its name, what --help says of it, how it runs,
// the function that makes it and the one that chooses its size. Everything else that depends on
// workloads asks this list.
#include "suite/program/catalog.hpp"

#include <fmt/format.h>

#include "metrics/base/error.hpp"

namespace heteroperf {

const std::vector<CatalogEntry>& catalog() {
  static const std::vector<CatalogEntry> entries{
      {"image", "training of one fixed image classifier (--model), on any plan",
       ProgramKind::training, make_image, choose_image_size},
      {"automl-image", "architecture and hyper-parameter search over image classifiers",
       ProgramKind::search, make_automl_image, choose_search_size},
      {"llm", "training of a GPT whose size grows with the machine (--size), on any plan",
       ProgramKind::training, make_llm, choose_llm_size},
      {"two-tower",
       "training of an image and a text tower by a contrastive loss (--size), on any plan",
       ProgramKind::training, make_two_tower, choose_two_tower_size},
      {"vlm",
       "training of a vision-language model on images and their captions (--size), on any plan",
       ProgramKind::training, make_vlm, choose_vlm_size},
      {"co-attention",
       "training of two streams that look at each other, on scenes and captions (--size), on any "
       "plan",
       ProgramKind::training, make_co_attention, choose_co_attention_size},
  };
  return entries;
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) names.emplace_back(entry.name);
  return names;
}

const CatalogEntry& find_workload(const std::string& name) {
  for (const CatalogEntry& entry : catalog()) {
    if (name == entry.name) return entry;
  }
  throw UserError(fmt::format("unknown workload '{}'", name),
                  fmt::format("one of {}", fmt::join(workload_names(), " ")),
                  suggest_name(name, workload_names()));
}

}  // namespace heteroperf
