// Traces in Chrome's format, of which `report` draws a step.
#include "results/report/report_run.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  read_hostile([&] { step_timeline(std::string(text_of(data, size)), "trace.json", 1.0); });
  return 0;
}
