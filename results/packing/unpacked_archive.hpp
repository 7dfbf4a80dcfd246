#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "metrics/base/cache_folder.hpp"

namespace heteroperf {

/// The limits of what an archive may unpack to, however small it is itself.
struct UnpackingLimits {
  std::uint64_t least_entries = 20'000;  ///< files and folders, those above them too
  std::uint64_t bytes_per_entry = 256;   ///< per entry of the archive, beyond these
  std::uint64_t least_bytes = std::uint64_t{1} << 30;
  std::uint64_t times_archive = 200;  ///< journals shrink to a tenth
};

/// True when a file begins as gzip does, like what `pack` writes.
bool is_archive_file(const std::filesystem::path& path);

/// The files of an archive that `pack` wrote, in a private folder under the cache folder; removed
/// with this object. Nothing is ever written outside of it: links, devices, absolute names, names
/// with "..", names that stand there twice and archives beyond the limits end the unpacking.
class UnpackedArchive {
 public:
  /// Throws UserError where the file is no archive, or none of a run, SystemError where it cannot
  /// be read or the cache folder is full.
  explicit UnpackedArchive(const std::filesystem::path& archive, UnpackingLimits limits = {});

  /// The folder that was packed: the archive's one top-level folder.
  const std::filesystem::path& folder() const { return folder_; }
  /// The fault of the archive itself: damaged, an entry that may not be, a file that its
  /// manifest does not list. Empty: nothing.
  const std::string& damage() const { return damage_; }

 private:
  PrivateFolder root_{"unpacked-"};
  std::filesystem::path folder_ = root_.path();
  std::string damage_;
};

}  // namespace heteroperf
