// PyTorch's tables of pipeline schedules, in both spellings and in the one that they look like.
#include "runners/schedule/formats/csv.hpp"
#include "tests/fuzz/hostile_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  const std::string_view text = text_of(data, size);
  for (const std::optional<CsvSpelling> spelling :
       {std::optional<CsvSpelling>(), std::optional(CsvSpelling::iwb),
        std::optional(CsvSpelling::bwbw)}) {
    read_hostile([&] { write_csv(read_csv(text, spelling, std::nullopt).schedule); });
  }
  return 0;
}
