#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace heteroperf {

/// A file that is written from its beginning and reaches the disk before it is closed. Whatever
/// the system refuses is a SystemError with the path and the system's words.
class SyncedFile {
 public:
  /// Replaces what is there.
  explicit SyncedFile(std::filesystem::path path);
  ~SyncedFile();
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void close();

 private:
  void check(bool ok) const;

  std::filesystem::path path_;
  int file_;
};

/// After it, the names in the folder survive a power cut. Throws SystemError.
void sync_folder(const std::filesystem::path& folder);

}  // namespace heteroperf
