// main() of a target where libFuzzer is not there: every file of the named folders is one input.
//
//   fuzz_journal tests/fuzz/corpus/journal
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/hostile_input.hpp"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& place) {
  if (fs::is_regular_file(place)) return {place};
  if (!fs::is_directory(place)) return {};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// In memory of exactly its size, so that a sanitizer sees who reads beyond its end.
std::vector<std::uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  bytes.shrink_to_fit();
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const fs::path& path : files_in(argv[i])) {
      std::fprintf(stderr, "%s\n", path.c_str());
      const std::vector<std::uint8_t> bytes = bytes_of(path);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++inputs;
    }
  }
  std::printf("%zu inputs read or refused\n", inputs);
  return inputs > 0 ? 0 : 2;
}
