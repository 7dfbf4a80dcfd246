// A journal as it is, and one of the lines that can be read with the hashes that they would have:
// so inputs reach what is made of a journal, its record, columns and checks.
#include <algorithm>

#include "results/comparison/run_digest.hpp"
#include "results/exports/run_export.hpp"
#include "results/journal/journal.hpp"
#include "results/record/record.hpp"
#include "results/record/sample_columns.hpp"
#include "results/record/verify.hpp"
#include "results/text/sha256.hpp"
#include "tests/fuzz/hostile_input.hpp"

namespace heteroperf {
namespace {

std::string with_own_hashes(std::string_view text) {
  std::string journal, prev(no_previous_line);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    read_hostile([&] {
      const ParsedLine parsed = event_from_json_line(line);
      const std::string again = event_to_json_line(parsed.t_ns, parsed.event, prev);
      prev = sha256_hex(again);
      journal += again + '\n';
    });
  }
  return journal;
}

void use(const Journal& journal) {
  const std::string record = build_record(journal);
  parse_run_digest(record, "record.json");
  show_record(record, "run", DocumentForm::markdown, {});
  sample_tables(journal);
  first_wrong_content(journal, input_folder().path());
}

}  // namespace
}  // namespace heteroperf

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string_view text = text_of(data, size);
  read_hostile([&] { use(parse_journal(text, "journal.jsonl")); });
  read_hostile([&] { use(parse_journal(with_own_hashes(text), "journal.jsonl")); });
  return 0;
}
