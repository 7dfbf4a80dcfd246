#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace heteroperf {

/// The whole of a file that a user named. `what` is what it should hold ("cluster file"), for the
/// message. Throws UserError "cannot read the `what` PATH (why). `suggestion`" where it is missing,
/// a folder, refused by the system, or too large to be held in memory.
std::string read_text_file(const std::filesystem::path& path, const std::string& what = {},
                           const std::string& suggestion = {});

/// Reads a file that lies where the program looks for it, so that nobody chose it: throws UserError
/// where it is no regular file, as a pipe may never end. Otherwise as read_text_file().
std::string read_regular_file(const std::filesystem::path& path);
/// Throws UserError "cannot read PATH (it is no regular file)" where something else is there.
void require_regular_file(const std::filesystem::path& path);

/// A new file under a hidden temporary name beside `target`, which disappears unless it is renamed.
/// Nobody else's file or link is followed or written to. All that fails throws SystemError with
/// `target` and the system's words; what was at `target` is then untouched.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return file_; }
  /// Syncs it too: some disks say only then that they are full.
  void write(std::string_view content);
  /// What was written to the descriptor is synced first, so that a power cut leaves the old file or
  /// the whole new one.
  void rename_to_target();

 private:
  void check(bool ok) const;

  std::filesystem::path target_, path_;
  int file_ = -1;
  bool renamed_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace heteroperf
