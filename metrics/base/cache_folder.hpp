#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// Returns $XDG_CACHE_HOME/heteroperf, else ~/.cache/heteroperf, else a folder in /tmp that carries
/// the user's number. The program writes nowhere else outside of --out. The folder may not exist
/// yet. A variable that is no absolute path counts as unset (XDG Base Directory Specification).
std::filesystem::path cache_folder();

/// Makes that folder where it is missing, for this user alone, and returns it. A folder to which
/// others could write is closed to them, and the files that they may have put there are removed.
///
/// Throws SystemError{environment} where the folder cannot be made, and where another user could
/// exchange it: because it or its parent belongs to that user (the parent may belong to root), or
/// because everybody may rename what the parent holds.
std::filesystem::path own_cache_folder();

/// A new folder in the cache that only this user may enter. The destructor removes it. A killed
/// process leaves its folder behind; the next PrivateFolder with the same prefix removes that.
class PrivateFolder {
 public:
  /// The folder's name is `prefix`, the host and six letters. Throws as own_cache_folder().
  explicit PrivateFolder(const std::string& prefix);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  ///< while somebody holds this lock, the folder's owner lives
};

}  // namespace heteroperf
