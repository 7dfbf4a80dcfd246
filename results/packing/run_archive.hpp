#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace heteroperf {

/// Name of the list of checksums in an archive, in the form of sha256sum.
inline constexpr const char* manifest_name = "MANIFEST.sha256";

/// The longest name of a packed file, from the top-level folder on: in bytes, and in folders with
/// the file itself. A sweep's checkpoints take seven of those.
inline constexpr std::size_t longest_packed_name = 1024;
inline constexpr std::ptrdiff_t deepest_packed_name = 16;
/// True where a name keeps these limits and no part of it is longer than file systems allow.
/// Packing and unpacking ask the same question.
bool may_be_packed(const std::filesystem::path& name);

/// Checkpoints are most of a folder's bytes and no part of its record, so they can be left out.
enum class PackedCheckpoints { none, all };

/// pack_folder() returns this about the archive that it wrote.
struct PackedArchive {
  std::filesystem::path file;
  std::size_t files = 0;
  std::uint64_t bytes = 0;  ///< in its files
  std::string sha256;       ///< hash of the archive
};

/// Writes a run, suite or sweep folder as one gzipped tar archive with a manifest, the folder's
/// name as its only top-level entry. The same files give the same bytes: entries are sorted,
/// without times and owners. Links, unfinished files and, with `none`, checkpoints are left out.
/// The file is there when it is whole. Throws UserError where `archive` lies in the folder or
/// a name in that is too long, SystemError where something cannot be read or written or changes on
/// the way.
PackedArchive pack_folder(const std::filesystem::path& folder, const std::filesystem::path& archive,
                          PackedCheckpoints checkpoints);

/// The first thing that a folder's manifest says and is not so: a name that it lists twice, a file
/// that is missing or has another checksum. Empty where all is well, or there is no manifest.
std::string manifest_contradictions(const std::filesystem::path& folder);
bool has_manifest(const std::filesystem::path& folder);
/// The files that a folder's manifest lists before that, relative to it; all where nothing is
/// wrong.
std::set<std::string> manifest_names(const std::filesystem::path& folder);

}  // namespace heteroperf
