#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/observed.hpp"

namespace heteroperf {

/// Reads the small text files of /proc, /sys and /etc below a root, so that tests can bring their
/// own. Paths are relative to the root ("proc/cpuinfo"); sources are reported as "/proc/cpuinfo".
class SystemFiles {
 public:
  explicit SystemFiles(std::filesystem::path root = "/") : root_(std::move(root)) {}

  /// The whole file without trailing white space; unavailable when missing, unreadable or empty.
  Observed<std::string> text(const std::string& path) const;
  /// The file's first word as an integer.
  Observed<long long> integer(const std::string& path) const;
  /// The value of the first line "key<separator>value" ("model name : …", "NAME=…", unquoted).
  Observed<std::string> field(const std::string& path, std::string_view key, char separator) const;
  /// A field "16384 kB", as /proc/meminfo and /proc/PID/status write it.
  Observed<Bytes> memory(const std::string& path, std::string_view key) const;
  bool exists(const std::string& path) const;

 private:
  std::filesystem::path root_;
};

std::string_view trimmed(std::string_view text);
/// Splits at any of `separators`, dropping empty parts.
std::vector<std::string> split_words(std::string_view text, std::string_view separators = " \t\n");
/// A decimal integer that fills the whole text; nothing otherwise.
std::optional<long long> parse_integer(std::string_view text);

}  // namespace heteroperf
