// A folder of one Metis profile.
#include "runners/plan/rivals/metis/metis.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::filesystem::path folder = input_folder().path() / "metis";
  std::filesystem::create_directories(folder);
  input_folder().write("metis/DeviceType.A100_tp1_bs1.json", text_of(data, size));
  read_hostile([&] { read_metis_profiles(folder); });
  return 0;
}
