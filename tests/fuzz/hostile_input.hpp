#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "metrics/base/error.hpp"

/// A target does this with one input: it calls a reader as the program does. libFuzzer's main, or
/// replay.cpp's, calls it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace heteroperf {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls a reader. It may refuse what it is given; an internal error or any other exception is a
/// finding, and ends the program.
template <class Read>
void read_hostile(Read read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::internal) return;
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  }
}

/// A folder of this process for readers of files, and the cache folder too.
class InputFolder {
 public:
  InputFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("heteroperf-fuzz-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_ / "cache");
    setenv("XDG_CACHE_HOME", (path_ / "cache").c_str(), 1);
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream(file, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

/// Made with the first input, removed when the process ends in order.
inline const InputFolder& input_folder() {
  static const InputFolder folder;
  return folder;
}

/// Takes what stands before the next zero byte off an input that holds several files.
inline std::string_view take_part(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(part.size());
  if (!rest.empty()) rest.remove_prefix(1);
  return part;
}

}  // namespace heteroperf
