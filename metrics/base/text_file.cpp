#include "metrics/base/text_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t block_bytes = 1 << 16;
constexpr std::size_t most_bytes = std::size_t{1} << 32;
/// Bounds what is read of a device or a pipe: /dev/zero never ends.
constexpr std::size_t most_stream_bytes = std::size_t{1} << 28;

int open_new(const fs::path& path) {
  constexpr mode_t everybody_reads = 0644;
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                everybody_reads);
}

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

std::string read_regular_file(const fs::path& path) {
  require_regular_file(path);
  return read_text_file(path);
}

void require_regular_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // The reader's own message fits a missing file or a folder better.
  if (!fs::exists(status) || fs::is_directory(status) || fs::is_regular_file(status)) return;
  throw UserError("cannot read " + path.string(), "it is no regular file");
}

TemporaryFile::TemporaryFile(const fs::path& target)
    : target_(target),
      path_(target.parent_path() / fmt::format(".{}.tmp-{}", target.filename().string(), getpid())),
      file_(open_new(path_)) {
  if (file_ < 0 && errno == EEXIST) {
    // A killed process of this number left it, or somebody planted it.
    ::unlink(path_.c_str());
    file_ = open_new(path_);
  }
  check(file_ >= 0);
}

TemporaryFile::~TemporaryFile() {
  if (file_ >= 0) ::close(file_);
  if (!renamed_) ::unlink(path_.c_str());
}

void TemporaryFile::write(std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file_, content.data(), content.size());
    check(written >= 0 || errno == EINTR);
    if (written > 0) content.remove_prefix(static_cast<std::size_t>(written));
  }
  check(::fsync(file_) == 0);
}

void TemporaryFile::rename_to_target() {
  check(::fsync(file_) == 0);
  const int file = std::exchange(file_, -1);
  check(::close(file) == 0);
  check(::rename(path_.c_str(), target_.c_str()) == 0);
  renamed_ = true;
}

void TemporaryFile::check(bool ok) const {
  if (!ok) throw SystemError("cannot write " + target_.string(), std::strerror(errno));
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  TemporaryFile file(path);
  file.write(content);
  file.rename_to_target();
}

}  // namespace heteroperf
