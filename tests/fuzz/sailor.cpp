// Sailor's five files of a cluster and a model, one after another with zero bytes between.
#include "runners/plan/rivals/sailor/sailor_inputs.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  std::string_view rest = text_of(data, size);
  for (const char* name : {"training_config_input.json", "profiles.json", "llm_info.json",
                           "multizone_bandwidths_het.json", "basic_cluster_config.json"}) {
    input_folder().write(name, take_part(rest));
  }
  read_hostile([&] { read_sailor_inputs({.folder = input_folder().path(), .training = {}}); });
  return 0;
}
