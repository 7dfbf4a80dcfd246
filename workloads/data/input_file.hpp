#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct gzFile_s;

namespace heteroperf {

/// A file's bytes, mapped for reading, so that the ranks of one node share the pages.
class MappedFile {
 public:
  /// Throws UserError with the path and the system's words when it cannot be opened as a file.
  explicit MappedFile(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  std::shared_ptr<const std::byte> data_;
  std::size_t size_ = 0;
};

/// Reads a plain or gzipped file from start to end. `offset_` counts inflated bytes.
class InflatedFile {
 public:
  /// Throws UserError when it cannot be opened as a file.
  explicit InflatedFile(const std::string& path);

  /// Reads exactly `count` bytes. `what` names them in the UserError for a short or damaged file.
  std::vector<std::uint8_t> read(std::uint64_t count, const std::string& what);
  /// Throws UserError when bytes are left, or when gzip's check sum does not match.
  void expect_end();

  const std::string& path() const { return path_; }

 private:
  /// Fills as much of `out` as the file has; throws UserError for a damaged stream.
  std::size_t read_some(std::span<std::uint8_t> out);
  [[noreturn]] void fail(const std::string& why) const;

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::uint64_t offset_ = 0;
};

}  // namespace heteroperf
