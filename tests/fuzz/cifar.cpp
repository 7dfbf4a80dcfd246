// A folder of one binary batch of CIFAR-10.
#include "tests/fuzz/hostile_input.hpp"
#include "tests/fuzz/read_samples.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  input_folder().write("data_batch_1.bin", text_of(data, size));
  read_hostile(
      [&] { read_samples({.source = "cifar10:" + input_folder().path().string(), .wanted = {}}); });
  return 0;
}
