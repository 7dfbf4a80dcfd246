// A file whose data are on the disk before it is closed.
#include "runners/engine/checkpoint/synced_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr mode_t file_mode = 0644;

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  throw SystemError(fmt::format("cannot write {}", path.string()), std::strerror(code),
                    full ? "Make room, or keep fewer checkpoints (checkpoint.keep)." : "");
}

}  // namespace

SyncedFile::SyncedFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, file_mode)) {
  check(file_ >= 0);
}

SyncedFile::~SyncedFile() {
  if (file_ >= 0) ::close(file_);
}

void SyncedFile::check(bool ok) const {
  if (!ok) fail(path_, errno);
}

void SyncedFile::write(const void* data, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // below what one call takes
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_, next, std::min(bytes, most));
    check(written >= 0 || errno == EINTR);
    if (written <= 0) continue;
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void SyncedFile::close() {
  check(::fsync(file_) == 0);
  check(::close(std::exchange(file_, -1)) == 0);
}

void sync_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail(folder, errno);
  const bool ok = ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  // Some file systems cannot sync folders and keep them in order all the same.
  if (!ok && code != EINVAL) fail(folder, code);
}

}  // namespace heteroperf
