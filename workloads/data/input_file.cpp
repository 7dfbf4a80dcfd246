#include "workloads/data/input_file.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <zlib.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UserError("cannot read '" + path + "'", why, "Check the path given to --data.");
}

/// Closes a descriptor at the end of its scope.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) refuse(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.number, &status) != 0) refuse(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path, "it is not a regular file");
  size_ = status.st_size;
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number, 0);
  if (address == MAP_FAILED) refuse(path, std::strerror(errno));
  data_ = {static_cast<const std::byte*>(address),
           [address, size = size_](const std::byte*) { ::munmap(address, size); }};
}

namespace {

constexpr std::uint64_t chunk = std::uint64_t{1} << 24;

void expect_regular_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw UserError("cannot read '" + path + "'", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw UserError("cannot read '" + path + "'", "not a regular file");
}

}  // namespace

InflatedFile::InflatedFile(const std::string& path) : path_(path), file_(nullptr, gzclose) {
  expect_regular_file(path);
  file_.reset(gzopen(path.c_str(), "rbe"));
  if (!file_) throw UserError("cannot read '" + path + "'", std::strerror(errno));
  gzbuffer(file_.get(), 1 << 18);
}

void InflatedFile::fail(const std::string& why) const {
  throw UserError(fmt::format("'{}' is damaged at offset {}", path_, offset_), why,
                  "Fetch the file again.");
}

std::size_t InflatedFile::read_some(std::span<std::uint8_t> out) {
  const int got = gzread(file_.get(), out.data(), static_cast<unsigned>(out.size()));
  int code = Z_OK;
  const char* words = gzerror(file_.get(), &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    fail(code == Z_BUF_ERROR ? "the gzip stream ends too early"
                             : fmt::format("gzip says: {}", words));
  }
  offset_ += static_cast<std::uint64_t>(got);
  return got;
}

std::vector<std::uint8_t> InflatedFile::read(std::uint64_t count, const std::string& what) {
  std::vector<std::uint8_t> bytes;
  // The buffer grows with the file's contents: a wrong count in a header must not reserve memory.
  while (bytes.size() < count) {
    const std::size_t had = bytes.size();
    const auto asked = static_cast<std::size_t>(std::min(chunk, count - had));
    bytes.resize(had + asked);
    const std::size_t got = read_some(std::span(bytes).subspan(had));
    bytes.resize(had + got);
    if (got < asked) {
      fail(fmt::format("the file ends after {} of {} bytes of {}", bytes.size(), count, what));
    }
  }
  return bytes;
}

void InflatedFile::expect_end() {
  std::uint8_t extra = 0;
  if (read_some({&extra, 1}) != 0) fail("more bytes follow than its header says");
}

}  // namespace heteroperf
