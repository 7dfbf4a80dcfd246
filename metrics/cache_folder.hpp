#pragma once

#include <filesystem>
#include <string>

namespace heteroperf {

/// $XDG_CACHE_HOME/heteroperf, else ~/.cache/heteroperf, else one in /tmp of this user's own: all
/// that is written outside of --out. It may not exist yet.
std::filesystem::path cache_folder();

/// That folder, made where it is not there, with only this user in it: where others could write to
/// it, it is closed to them and what they may have put there is gone. Throws
/// SystemError{environment} where it cannot be made, or where another user could exchange it: it or
/// the folder above it belongs to one (root may have the one above), or everybody may rename what
/// is in that.
std::filesystem::path own_cache_folder();

/// A new folder in it that only this user may enter; it goes with this object.
class PrivateFolder {
 public:
  /// It is named `prefix` and six letters. Throws as own_cache_folder().
  explicit PrivateFolder(const std::string& prefix);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace heteroperf
