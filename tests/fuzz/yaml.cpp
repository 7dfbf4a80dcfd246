// FlagScale's configurations, and the plan that they are for a model of twelve blocks.
#include "runners/plan/rivals/trainers/trainer_plans.hpp"
#include "tests/fuzz/hostile_input.hpp"
#include "workloads/models/models.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  static const ModelGraph graph = build_model("gpt2");
  read_hostile(
      [&] { plan_of(parse_flagscale(std::string(text_of(data, size)), "train.yaml"), graph); });
  return 0;
}
