// A folder in MNIST's layout: four bytes that say how long the file of images is, that file, the
// file of labels. Either may be gzipped.
#include <algorithm>

#include "tests/fuzz/hostile_input.hpp"
#include "tests/fuzz/read_samples.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  if (size < 4) return 0;
  const std::size_t stated = data[0] + 256U * data[1] + 65536U * data[2];
  const std::string_view files = text_of(data + 4, size - 4);
  const std::string_view images = files.substr(0, stated);
  input_folder().write("images-idx3-ubyte", images);
  input_folder().write("labels-idx1-ubyte", files.substr(images.size()));
  read_hostile(
      [&] { read_samples({.source = "idx:" + input_folder().path().string(), .wanted = {}}); });
  return 0;
}
