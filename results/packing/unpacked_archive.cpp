// Unpacks an archive that somebody else may have made, so nothing in it is trusted. Before an entry
// is written its name, its kind and its size are held to what `pack` writes: plain files and
// folders below one top-level folder, no links, no devices, nothing outside and nothing twice. The
// number of entries and of bytes is limited in proportion to the archive's own size, as a small
// file can inflate to any length. Two faults are told apart: a file that never was an archive of a
// run is the user's mistake and throws; an archive that is *damaged* is unpacked as far as
// possible, and `verify` reports its damage.
#include "results/packing/unpacked_archive.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/packing/run_archive.hpp"
#include "results/record/run_folder.hpp"
#include "results/sweep/sweep_index.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t unpacked_chunk_bytes = 1 << 20;
constexpr const char* writer = "`heteroperf pack RUN` writes one.";

/// Thrown inside this file where the archive is not what `pack` writes; the text says why.
/// `foreign` is true where it never was an archive at all.
struct Damaged {
  std::string text;
  bool foreign = false;
};

/// libarchive's ARCHIVE_ERRNO_MISC, which its header does not have: the compressed stream is cut or
/// broken. A stream that is whole but holds no archive has another number.
constexpr int broken_stream = -1;
constexpr std::uintmax_t gzip_header_bytes = 10;

using OpenArchive =
    std::unique_ptr<archive, decltype([](archive* open) { archive_read_free(open); })>;

std::string words_of(archive* open) {
  const char* words = archive_error_string(open);
  return words == nullptr ? "cannot be read" : words;
}

/// Only gzip and tar are read: no other format of the library gets to see a stranger's bytes.
OpenArchive open_archive(const fs::path& path) {
  OpenArchive open(archive_read_new());
  archive_read_support_filter_gzip(open.get());
  archive_read_support_format_tar(open.get());
  if (archive_read_open_filename(open.get(), path.c_str(), unpacked_chunk_bytes) == ARCHIVE_OK)
    return open;
  throw Damaged{words_of(open.get()), archive_errno(open.get()) != broken_stream};
}

/// Returns an entry's name, of which its text alone shows that it lies below the folder.
fs::path checked_name(archive_entry* entry) {
  const char* text = archive_entry_pathname(entry);
  const fs::path name = text == nullptr ? "" : text;
  if (!may_be_packed(name)) throw Damaged{"a name in it is longer than any that `pack` writes"};
  const bool leaves = name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
  if (name.empty() || leaves) {
    throw Damaged{fmt::format("'{}' does not lie in the archive's folder", name.string())};
  }
  return name.lexically_normal();
}

/// One pass through an archive. The limits are counted down as entries come.
class Unpacking {
 public:
  Unpacking(const fs::path& archive, const fs::path& root, const UnpackingLimits& limits)
      : root_(root) {
    // Small archives get fixed limits; large ones may unpack to more, in proportion to their size.
    entries_left_ = std::max(limits.least_entries, fs::file_size(archive) / limits.bytes_per_entry);
    bytes_left_ = std::max(limits.least_bytes, limits.times_archive * fs::file_size(archive));
    bytes_ = bytes_left_;
    if (fs::file_size(archive) < gzip_header_bytes) throw Damaged{"it ends within its first bytes"};
    open_ = open_archive(archive);
  }

  /// Unpacks the next entry; false after the last one.
  bool take_next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(open_.get(), &entry);
    if (result == ARCHIVE_EOF) return false;
    // A file whose first header cannot be read although its stream is whole never was an archive.
    if (result < ARCHIVE_WARN) {
      const bool broken = archive_errno(open_.get()) == broken_stream;
      throw Damaged{words_of(open_.get()), entries_ == 0 && !broken};
    }
    ++entries_;
    count_one();
    const fs::path name = checked_name(entry);
    const bool linked = archive_entry_hardlink(entry) != nullptr;
    if (archive_entry_filetype(entry) == AE_IFDIR && !linked) {
      make_folders(name);
    } else if (archive_entry_filetype(entry) == AE_IFREG && !linked) {
      take_file(name, archive_entry_size(entry));
    } else {
      throw Damaged{fmt::format("'{}' is a link or a device", name.string())};
    }
    if (top_.empty()) top_ = *name.begin();
    if (*name.begin() != top_) {
      throw Damaged{fmt::format("'{}' lies beside the folder {}", name.string(), top_.string())};
    }
    return true;
  }

  const fs::path& top() const { return top_; }

 private:
  void count_one() {
    if (entries_left_ == 0) throw Damaged{"it has too many files and folders"};
    --entries_left_;
  }

  /// Makes the folders above an entry that are not there yet. Each counts as an entry, since a long
  /// name makes many of them.
  void make_folders(const fs::path& name) {
    fs::path folder = root_;
    for (const fs::path& part : name) {
      folder /= part;
      if (part.empty() || !folders_.insert(folder).second) continue;
      count_one();
      std::error_code error;
      fs::create_directory(folder, error);
      if (error == std::errc::file_exists || error == std::errc::not_a_directory) {
        throw Damaged{fmt::format("'{}' stands there twice", name.string())};
      }
      if (error) throw Damaged{fmt::format("'{}': {}", name.string(), error.message())};
    }
  }

  /// The size in the header is subtracted before a byte is written.
  void take_file(const fs::path& name, la_int64_t size) {
    if (size < 0 || static_cast<std::uint64_t>(size) > bytes_left_) {
      throw Damaged{
          fmt::format("'{}' goes beyond {} bytes, the most that this archive may unpack to",
                      name.string(), bytes_)};
    }
    bytes_left_ -= static_cast<std::uint64_t>(size);
    const fs::path path = root_ / name;
    make_folders(name.parent_path());
    std::error_code error;
    if (fs::exists(path, error)) {
      throw Damaged{fmt::format("'{}' stands there twice", name.string())};
    }
    copy_data(path, static_cast<std::uint64_t>(size));
  }

  void copy_data(const fs::path& path, std::uint64_t size) {
    std::ofstream file(path, std::ios::binary);
    std::vector<char> chunk(unpacked_chunk_bytes);
    std::uint64_t taken = 0;
    while (true) {
      const la_ssize_t got = archive_read_data(open_.get(), chunk.data(), chunk.size());
      if (got < 0) throw Damaged{words_of(open_.get())};
      if (got == 0) break;
      taken += static_cast<std::uint64_t>(got);
      // The gaps of a sparse file are wherever it says.
      if (taken > size) throw Damaged{path.filename().string() + " goes on behind its size"};
      file.write(chunk.data(), got);
    }
    file.close();
    if (!file) {
      throw SystemError("cannot write " + path.string(), std::strerror(errno),
                        "Set XDG_CACHE_HOME to a folder with space", ErrorKind::environment);
    }
    if (taken != size) throw Damaged{path.filename().string() + " ends before its size"};
  }

  const fs::path& root_;
  OpenArchive open_;
  std::uint64_t entries_left_ = 0, bytes_left_ = 0, bytes_ = 0;
  std::size_t entries_ = 0;
  std::set<fs::path> folders_;  // made so far
  fs::path top_;
};

/// True where `verify` would find something in the folder.
bool holds_run(const fs::path& folder) {
  const RunFiles files{folder};
  return fs::exists(files.journal()) || fs::exists(files.record()) || fs::exists(files.suite()) ||
         is_sweep_folder(folder);
}

/// The first file beside those of the manifest, which nobody packed, and how many more there are.
std::string unlisted_files(const fs::path& folder) {
  const std::set<std::string> listed = manifest_names(folder);
  std::string first;
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (entry.is_directory() || name == manifest_name || listed.contains(name)) continue;
    if (++count == 1 || name < first) first = name;
  }
  if (count == 0) return {};
  return first + (count == 1 ? std::string(" is") : fmt::format(" and {} more are", count - 1)) +
         " not in the manifest";
}

}  // namespace

bool is_archive_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::array<char, 2> first{};
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), first.size()) && first[0] == '\x1f' && first[1] == '\x8b';
}

UnpackedArchive::UnpackedArchive(const fs::path& archive, UnpackingLimits limits) {
  try {
    Unpacking unpacking(archive, root_.path(), limits);
    while (unpacking.take_next()) folder_ = root_.path() / unpacking.top();
  } catch (const Damaged& damaged) {
    if (damaged.foreign) {
      throw UserError(archive.string() + " is no archive of a run", damaged.text, writer);
    }
    damage_ = damaged.text;
    return;
  }
  if (!has_manifest(folder_) || !holds_run(folder_)) {
    throw UserError(archive.string() + " is no archive of a run",
                    has_manifest(folder_) ? "no journal, record, suite or sweep is in it"
                                          : fmt::format("no {} is in it", manifest_name),
                    writer);
  }
  damage_ = unlisted_files(folder_);
}

}  // namespace heteroperf
