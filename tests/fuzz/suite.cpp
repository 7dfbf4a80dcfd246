// suite.json and sweep.json of a folder that holds nothing else.
#include "metrics/base/document_kind.hpp"
#include "results/record/suite_record.hpp"
#include "results/record/verify.hpp"
#include "results/sweep/sweep_index.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string text(text_of(data, size));
  const std::filesystem::path folder = input_folder().path() / "suite";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const bool sweep = stated_format(text) == "heteroperf-sweep";
  input_folder().write(sweep ? "suite/sweep.json" : "suite/suite.json", text);
  is_of_another_version(text);
  read_hostile([&] {
    const SweepIndex index = parse_sweep(text, "sweep.json");
    has_own_seal(text);
    sweep_text_as_written(text, index);
    sweep_json_text(index);
  });
  read_hostile([&] {
    if (const auto suite = read_suite_record(folder)) build_suite_record(folder, suite->plan);
  });
  read_hostile([&] { verify(folder); });
  return 0;
}
