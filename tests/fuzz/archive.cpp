// An archive of a run. What is no gzip stream is taken as the tar file within one, so that inputs
// are not stopped by its checksum.
#include <zlib.h>

#include "results/packing/run_archive.hpp"
#include "results/packing/unpacked_archive.hpp"
#include "tests/fuzz/hostile_input.hpp"

namespace heteroperf {
namespace {

std::string as_archive(std::string_view bytes) {
  const std::string path = input_folder().write("input.tar.gz", bytes);
  if (is_archive_file(path)) return path;
  if (gzFile file = gzopen(path.c_str(), "wb1")) {
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  return path;
}

}  // namespace
}  // namespace heteroperf

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  constexpr UnpackingLimits small{.least_entries = 100,
                                  .bytes_per_entry = 1 << 20,
                                  .least_bytes = 1 << 20,
                                  .times_archive = 10};
  const std::string path = as_archive(text_of(data, size));
  read_hostile([&] {
    const UnpackedArchive unpacked(path, small);
    if (unpacked.damage().empty()) manifest_contradictions(unpacked.folder());
  });
  return 0;
}
