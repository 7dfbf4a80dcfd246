#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace heteroperf {

/// Reads the whole of a file that a user named. `what` says what it should hold ("cluster file").
/// Throws UserError "cannot read the `what` PATH (why). `suggestion`" where the file is missing, a
/// folder, refused by the system, or too large to be held in memory.
std::string read_text_file(const std::filesystem::path& path, const std::string& what = {},
                           const std::string& suggestion = {});

/// Reads a file that lies where the program looks for it, so that nobody chose it. Throws UserError
/// where it is no regular file, because a pipe may never end; else works as read_text_file().
std::string read_regular_file(const std::filesystem::path& path);
/// Throws UserError "cannot read PATH (it is no regular file)" where something else is there.
void require_regular_file(const std::filesystem::path& path);

/// A new file under a hidden temporary name beside `target`. It disappears unless it is renamed. It
/// follows no link and writes to no file of somebody else. Every failure throws SystemError with
/// `target` and the system's words, and leaves untouched what was at `target`.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return file_; }
  /// Writes and syncs: some disks only say then that they are full.
  void write(std::string_view content);
  /// Syncs first what was written to the descriptor, so that a power cut leaves the old file or the
  /// whole new one.
  void rename_to_target();

 private:
  void check(bool ok) const;

  std::filesystem::path target_, path_;
  int file_ = -1;
  bool renamed_ = false;
};

/// Replaces the file at `path` by one with this content, or leaves it as it was and throws.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace heteroperf
