// Texts and token files: a byte for the width, one for the context, one for the vocabulary, the
// file.
#include <iterator>

#include "tests/fuzz/hostile_input.hpp"
#include "tests/fuzz/read_samples.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  struct Kind {
    const char* prefix;
    const char* file;
  };
  constexpr Kind kinds[] = {
      {"text:", "input.txt"}, {"tokens:", "input.u16"}, {"tokens:", "input.u32"}};
  if (size < 3) return 0;
  const Kind& kind = kinds[data[0] % std::size(kinds)];
  const SampleSpec wanted{
      .kind = SampleKind::tokens, .length = 1 + data[1], .classes = 4 * data[2]};
  const std::string path = input_folder().write(kind.file, text_of(data + 3, size - 3));
  read_hostile([&] { read_samples({.source = kind.prefix + path, .wanted = wanted}); });
  return 0;
}
