// Packs a folder of results into one archive, and checks an unpacked folder against its manifest.
// An archive is a gzipped tar file whose last entry, MANIFEST.sha256, has the SHA-256 of every
// other file in the form that `sha256sum -c` reads. The same files always give the same bytes:
// entries are sorted by their names' bytes, and neither times nor owners are written. Every file is
// hashed and packed in one pass, so that a file that changes on the way cannot get a hash that
// belongs to other bytes. The archive grows under a temporary name and is renamed when it is whole.
#include "results/packing/run_archive.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t packed_chunk_bytes = 1 << 20;

using NewArchive =
    std::unique_ptr<archive, decltype([](archive* open) { archive_write_free(open); })>;
using NewEntry = std::unique_ptr<archive_entry,
                                 decltype([](archive_entry* entry) { archive_entry_free(entry); })>;

/// A gzipped tar archive that disappears unless it is finished. All refusals of the library or the
/// disk become SystemError of the kind `environment`.
class TarWriter {
 public:
  explicit TarWriter(const fs::path& target)
      : target_(target), file_(file_for(target)), archive_(archive_write_new()) {
    // Times in the gzip header would make every archive another.
    check(archive_write_add_filter_gzip(archive_.get()));
    check(archive_write_set_filter_option(archive_.get(), "gzip", "timestamp", nullptr));
    // Names of any bytes and length without headers that some readers warn of.
    check(archive_write_set_format_gnutar(archive_.get()));
    check(archive_write_open_fd(archive_.get(), file_.descriptor()));
  }

  /// Writes an entry's header; exactly `bytes` bytes of its content follow by add().
  void begin_file(const std::string& name, std::uint64_t bytes) {
    const NewEntry entry(archive_entry_new());
    constexpr unsigned mode = 0644;
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), mode);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes));
    archive_entry_set_mtime(entry.get(), 0, 0);
    check(archive_write_header(archive_.get(), entry.get()));
  }
  void add(const char* data, std::size_t bytes) {
    if (bytes == 0) return;
    const la_ssize_t written = archive_write_data(archive_.get(), data, bytes);
    if (written != static_cast<la_ssize_t>(bytes)) check(ARCHIVE_FATAL);
  }
  void finish() {
    check(archive_write_close(archive_.get()));
    file_.rename_to_target();
  }

 private:
  /// A target that cannot be made is the fault of the environment, not of the results.
  static TemporaryFile file_for(const fs::path& target) {
    try {
      return TemporaryFile(target);
    } catch (const SystemError& error) {
      const Problem& refused = error.problems().front();
      throw SystemError(refused.problem, refused.why, "", ErrorKind::environment);
    }
  }
  void check(int result) const {
    if (result == ARCHIVE_OK) return;
    const char* words = archive_error_string(archive_.get());
    throw SystemError("cannot write " + target_.string(), words == nullptr ? "" : words, "",
                      ErrorKind::environment);
  }

  fs::path target_;
  TemporaryFile file_;  // outlives the archive, whose end writes to it
  NewArchive archive_;
};

/// True for a file or a checkpoint that was being written when its process was killed.
bool is_unfinished(const fs::path& part) {
  const std::string name = part.string();
  return name.starts_with('.') && name.find(".tmp") != std::string::npos;
}

/// The manifest of an earlier unpacking is left out as well, since the archive gets a new one.
bool is_left_out(const fs::path& relative, PackedCheckpoints checkpoints) {
  if (relative.filename() == manifest_name) return true;
  if (std::any_of(relative.begin(), relative.end(), is_unfinished)) return true;
  return checkpoints == PackedCheckpoints::none &&
         std::find(relative.begin(), relative.end(), "checkpoints") != relative.end();
}

/// Writes a line as sha256sum writes and reads it: a name with a line feed or a backslash has both
/// escaped, and the line then begins with a backslash.
std::string manifest_line(const std::string& sha256, const std::string& name) {
  std::string escaped;
  for (const char c : name) escaped += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
  return (escaped == name ? "" : "\\") + sha256 + "  " + escaped + '\n';
}

/// A line of the manifest: a hash in hexadecimal digits, and a file's name relative to the folder.
struct ManifestEntry {
  std::string sha256, name;
};

/// Undoes manifest_line(). The entry has no name where the text is no such line.
ManifestEntry parse_manifest_line(const std::string& text) {
  constexpr std::size_t digits = 64;
  const bool escaped = text.starts_with('\\');
  const std::string line = text.substr(escaped ? 1 : 0);
  if (line.size() <= digits + 2) return {};
  ManifestEntry entry{line.substr(0, digits), ""};
  for (std::size_t i = digits + 2; i < line.size(); ++i) {
    const bool escape = escaped && line[i] == '\\' && i + 1 < line.size();
    if (escape) ++i;
    entry.name += escape && line[i] == 'n' ? '\n' : line[i];
  }
  return entry;
}

/// The manifest as far as it could be read.
struct Manifest {
  std::vector<ManifestEntry> entries;
  std::string problem;  ///< why the list ends there; empty where it is whole
};

/// Reads the list and finds names that cannot be right: outside of the folder, missing, or twice.
/// Places are compared by their canonical paths, since a short list may name one large file many
/// times through links. Nothing is hashed yet, so that such a list is refused before it costs time.
Manifest read_manifest(const fs::path& folder) {
  constexpr std::size_t longest_line = 4096;  // every byte of a name may be escaped
  Manifest manifest;
  std::set<fs::path> places;
  std::ifstream file(folder / manifest_name, std::ios::binary);
  std::array<char, longest_line> line{};
  while (manifest.problem.empty() && file.getline(line.data(), line.size())) {
    ManifestEntry entry = parse_manifest_line(line.data());
    const fs::path name = fs::path(entry.name).lexically_normal();
    std::error_code error;
    if (entry.name.empty() || name.is_absolute() || name.begin()->string() == "..") {
      manifest.problem = fmt::format("'{}' names no file of the folder", line.data());
    } else if (!fs::is_regular_file(folder / name, error)) {
      manifest.problem = entry.name + " is missing";
    } else if (!places.insert(fs::canonical(folder / name, error)).second) {
      manifest.problem = entry.name + " is listed twice";
    } else {
      manifest.entries.push_back(std::move(entry));
    }
  }
  if (manifest.problem.empty() && file.is_open() && !file.eof()) {
    manifest.problem = fmt::format("a line of {} is too long", manifest_name);
  }
  return manifest;
}

/// Relative paths with forward slashes, sorted by their bytes.
std::vector<std::string> files_in(const fs::path& folder, PackedCheckpoints checkpoints) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink() || !entry.is_regular_file()) continue;
    const fs::path relative = entry.path().lexically_relative(folder);
    if (!is_left_out(relative, checkpoints)) files.push_back(relative.generic_string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Feeds a file's bytes to `take` and returns how many there were.
std::uint64_t read_through(const fs::path& path, auto&& take) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> chunk(packed_chunk_bytes);
  std::uint64_t bytes = 0;
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const std::size_t got = file.gcount();
    if (got > 0) take(chunk.data(), got);
    bytes += got;
  }
  if (!file.is_open() || file.bad()) {
    throw SystemError("cannot read " + path.string(), std::strerror(errno));
  }
  return bytes;
}

/// An archive that lies in its own folder would be packed into itself.
void refuse_inside(const fs::path& archive, const fs::path& folder) {
  const fs::path parent = fs::weakly_canonical(fs::absolute(archive)).parent_path();
  const auto [end, parent_end] =
      std::mismatch(folder.begin(), folder.end(), parent.begin(), parent.end());
  if (end != folder.end()) return;
  throw UserError(archive.string() + " lies in the folder that it is made of", "",
                  "Give -o a path outside of " + folder.string());
}

}  // namespace

bool may_be_packed(const fs::path& name) {
  constexpr std::size_t longest_part = 255;  // in common file systems
  const auto fits = [](const fs::path& part) { return part.native().size() <= longest_part; };
  return name.native().size() <= longest_packed_name &&
         std::distance(name.begin(), name.end()) <= deepest_packed_name &&
         std::all_of(name.begin(), name.end(), fits);
}

PackedArchive pack_folder(const fs::path& folder, const fs::path& archive,
                          PackedCheckpoints checkpoints) {
  // The entry's size stands before its content, so a file that grows or shrinks meanwhile is
  // refused.
  const fs::path source = fs::canonical(folder);  // no link, no trailing slash
  refuse_inside(archive, source);
  const std::string top = source.filename().string();
  PackedArchive packed{archive, 0, 0, ""};
  TarWriter tar(archive);
  std::string manifest;
  for (const std::string& name : files_in(source, checkpoints)) {
    if (!may_be_packed(top + '/' + name)) {
      throw UserError(
          "cannot pack " + (source / name).string(),
          fmt::format("in an archive its name would have more than {} bytes or {} parts",
                      longest_packed_name, deepest_packed_name),
          "Move it out of the folder.");
    }
    const std::uint64_t size = fs::file_size(source / name);
    tar.begin_file(top + '/' + name, size);
    Sha256 hash;
    const std::uint64_t bytes =
        read_through(source / name, [&](const char* data, std::size_t count) {
          hash.update({data, count});
          tar.add(data, count);
        });
    if (bytes != size) {
      throw SystemError((source / name).string() + " changed while it was packed",
                        fmt::format("{} bytes, then {}", size, bytes), "Wait until the run ended.");
    }
    manifest += manifest_line(hash.finish(), name);
    ++packed.files;
    packed.bytes += bytes;
  }
  tar.begin_file(top + '/' + manifest_name, manifest.size());
  tar.add(manifest.data(), manifest.size());
  tar.finish();
  packed.sha256 = sha256_file_hex(archive.string());
  return packed;
}

bool has_manifest(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / manifest_name, error);
}

std::set<std::string> manifest_names(const fs::path& folder) {
  std::set<std::string> names;
  for (const ManifestEntry& entry : read_manifest(folder).entries) names.insert(entry.name);
  return names;
}

/// Hashes the files in the order of the list and ends at the first that differs.
std::string manifest_contradictions(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  if (!manifest.problem.empty()) return manifest.problem;
  for (const auto& [sha256, name] : manifest.entries) {
    const fs::path path = (folder / name).lexically_normal();
    if (sha256_file_hex(path.string()) != sha256) return name + " has another checksum";
  }
  return {};
}

}  // namespace heteroperf
