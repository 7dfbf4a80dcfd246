#pragma once

#include <string>

namespace heteroperf {

/// The file that an option, `--out` if no other, names; "" for none.
class OutputFile {
 public:
  OutputFile() = default;
  /// Throws UserError unless the file can be written.
  explicit OutputFile(std::string path, const char* option = "--out");

  bool given() const { return !path_.empty(); }
  /// Replaces what it holds, at once where it is no pipe or device: a file that is cut off is never
  /// there. False when that failed.
  bool write(const std::string& text) const;
  /// As write(), for what cannot go on without the file. Throws SystemError{environment}.
  void save(const std::string& text) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const char* option_ = "--out";
};

}  // namespace heteroperf
