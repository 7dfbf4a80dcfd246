#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// $XDG_CACHE_HOME/heteroperf, else ~/.cache/heteroperf, else one in /tmp of this user's own: all
/// that is written outside of --out. It may not exist yet. A variable that is no absolute path
/// counts as unset (XDG Base Directory Specification).
std::filesystem::path cache_folder();

/// That folder, made where it is not there, with only this user in it: where others could write to
/// it, it is closed to them and what they may have put there is gone. Throws
/// SystemError{environment} where it cannot be made, or where another user could exchange it: it or
/// the folder above it belongs to one (root may have the one above), or everybody may rename what
/// is in that.
std::filesystem::path own_cache_folder();

/// A new folder in it that only this user may enter; it goes with this object. Those that killed
/// processes of this host left go when the next one with their prefix is made.
class PrivateFolder {
 public:
  /// It is named `prefix`, the host and six letters. Throws as own_cache_folder().
  explicit PrivateFolder(const std::string& prefix);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  ///< of the folder: who holds it lives
};

}  // namespace heteroperf
