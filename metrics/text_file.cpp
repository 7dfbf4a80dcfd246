#include "metrics/text_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "metrics/error.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t block_bytes = 1 << 16;
constexpr std::size_t most_bytes = std::size_t{1} << 32;
/// A device such as /dev/zero never ends.
constexpr std::size_t most_stream_bytes = std::size_t{1} << 28;

}  // namespace

std::string read_text_file(const fs::path& path, const std::string& what,
                           const std::string& suggestion) {
  const auto refuse = [&](const std::string& why) {
    const std::string name =
        what.empty() ? path.string() : fmt::format("the {} {}", what, path.string());
    throw UserError("cannot read " + name, why, suggestion);
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) refuse(error.message());
  if (fs::is_directory(status)) refuse("it is a folder");
  const std::size_t most = fs::is_regular_file(status) ? most_bytes : most_stream_bytes;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text, block(block_bytes, '\0');
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(file.gcount()));
    if (text.size() > most) refuse(fmt::format("it is larger than {} MiB", most >> 20));
  }
  if (!file.is_open() || file.bad()) {
    refuse(errno != 0 ? std::strerror(errno) : "the system gives no reason");
  }
  return text;
}

}  // namespace heteroperf
