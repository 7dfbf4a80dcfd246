// The parser of all documents, with the limits of configurations and those of what runs leave.
#include "metrics/base/strict_json.hpp"
#include "metrics/base/document_kind.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string_view text = text_of(data, size);
  read_hostile([&] { shown(parse_strict_json(text, "input", "heteroperf-plan")); });
  read_hostile([&] { shown(parse_strict_json(text, "input", {}, run_file_limits)); });
  read_hostile([&] { require_stated_format(text, "input", "heteroperf-plan"); });
  return 0;
}
