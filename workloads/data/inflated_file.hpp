#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct gzFile_s;

namespace heteroperf {

/// Reads a plain or gzipped file from start to end. `offset` counts inflated bytes.
class InflatedFile {
 public:
  /// Throws UserError when it cannot be opened as a file.
  explicit InflatedFile(const std::string& path);

  /// Exactly `count` bytes; `what` names them in the UserError that a shorter or damaged file gets.
  std::vector<std::uint8_t> read(std::uint64_t count, const std::string& what);
  /// Throws UserError when bytes are left, or gzip's check sum does not match.
  void expect_end();

  const std::string& path() const { return path_; }

 private:
  std::size_t read_some(std::span<std::uint8_t> out);
  [[noreturn]] void fail(const std::string& why) const;

  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::uint64_t offset_ = 0;
};

}  // namespace heteroperf
