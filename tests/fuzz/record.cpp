// A stored record as compare, rank, gate, history and show take it before its journal is asked.
#include "results/comparison/run_digest.hpp"
#include "results/exports/run_export.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string text(text_of(data, size));
  read_hostile([&] { parse_run_digest(text, "record.json"); });
  for (const DocumentForm format :
       {DocumentForm::console, DocumentForm::json, DocumentForm::csv, DocumentForm::markdown}) {
    read_hostile([&] { show_record(text, "run", format, {}); });
  }
  return 0;
}
