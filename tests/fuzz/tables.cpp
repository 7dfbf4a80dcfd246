// Tables that others measured: Sailor's traces of machines, power and availability of ranked
// systems, AIPerf's results.
#include "results/ranking/ranking.hpp"
#include "runners/plan/rivals/sailor/sailor_tables.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string file = input_folder().write("table.csv", text_of(data, size));
  read_hostile([&] { read_sailor_trace(file); });
  read_hostile([&] { read_power_table(file); });
  read_hostile([&] { read_availability_table(file); });
  read_hostile([&] { read_aiperf_results(file); });
  return 0;
}
