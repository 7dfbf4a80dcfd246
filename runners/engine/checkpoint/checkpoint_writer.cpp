// Saves a checkpoint in two steps. Every rank writes its pieces to a file in a hidden folder beside
// the target. Then one rank checks that all files are there and that the pieces cover every tensor,
// writes the index and renames the folder. A folder with the final name is therefore always
// complete, even after a power cut: files are synced before the rename, folders after it.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"
#include "runners/engine/checkpoint/checkpoint_index.hpp"
#include "runners/engine/checkpoint/held_tensor.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

constexpr mode_t file_mode = 0644;

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  throw SystemError(fmt::format("cannot write {}", path.string()), std::strerror(code),
                    full ? "Make room, or keep fewer checkpoints (checkpoint.keep)." : "");
}

/// A file that is written from its beginning and reaches the disk before it is closed. Whatever
/// the system refuses is a SystemError with the path and the system's words.
class SyncedFile {
 public:
  /// Replaces what is there.
  explicit SyncedFile(fs::path path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, file_mode)) {
    check(file_ >= 0);
  }
  ~SyncedFile() {
    if (file_ >= 0) ::close(file_);
  }
  SyncedFile(const SyncedFile&) = delete;
  SyncedFile& operator=(const SyncedFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    constexpr std::size_t most = std::size_t{1} << 30;  // below what one call takes
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_, next, std::min(bytes, most));
      check(written >= 0 || errno == EINTR);
      if (written <= 0) continue;
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }
  void close() {
    check(::fsync(file_) == 0);
    check(::close(std::exchange(file_, -1)) == 0);
  }

 private:
  void check(bool ok) const {
    if (!ok) fail(path_, errno);
  }

  fs::path path_;
  int file_;
};

/// After it, the names in the folder survive a power cut. Throws SystemError.
void sync_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail(folder, errno);
  const bool ok = ::fsync(file) == 0;
  const int code = errno;
  ::close(file);
  // Some file systems cannot sync folders and keep them in order all the same.
  if (!ok && code != EINVAL) fail(folder, code);
}

constexpr std::size_t length_bytes = 8;

/// In a file of parts: a tensor's own name for all of it, else with the box.
std::string name_in_file(const TensorPiece& piece) {
  if (piece.box == whole_box(piece.shape)) return piece.tensor;
  return piece.tensor + to_string(piece.box);
}

/// A piece that breaks these rules is a bug of the caller.
void check_piece(const TensorPiece& piece) {
  HETEROPERF_EXPECT(stored_count(piece.shape).has_value());
  HETEROPERF_EXPECT(piece.box.dims == piece.shape.size());
  HETEROPERF_EXPECT(intersection(piece.box, whole_box(piece.shape)) == piece.box);
}

/// The pieces with elements, wide types first, so that every tensor in the file is aligned.
std::vector<const TensorPiece*> in_file_order(const std::vector<TensorPiece>& pieces) {
  std::vector<const TensorPiece*> order;
  for (const TensorPiece& piece : pieces) {
    check_piece(piece);
    if (piece.box.count() > 0) order.push_back(&piece);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorPiece* a, const TensorPiece* b) {
    return element_bytes(a->type) > element_bytes(b->type);
  });
  return order;
}

std::uint64_t bytes_of(const TensorPiece& piece) {
  return static_cast<std::uint64_t>(piece.box.count()) * element_bytes(piece.type);
}

/// The safetensors header: names, types, shapes and places of the pieces, padded with spaces to a
/// multiple of 8 bytes.
std::string header_of(const std::vector<const TensorPiece*>& pieces) {
  Json header{{"__metadata__", {{"heteroperf", "checkpoint"}}}};
  std::set<std::string> names;
  std::uint64_t begin = 0;
  for (const TensorPiece* piece : pieces) {
    const std::string name = name_in_file(*piece);
    HETEROPERF_EXPECT(names.insert(name).second);
    const std::uint64_t end = begin + bytes_of(*piece);
    std::vector<std::int64_t> shape;
    for (std::size_t dim = 0; dim < piece->box.dims; ++dim) {
      shape.push_back(piece->box.extent(dim));
    }
    // Not operator[] of a name: that looks through all names before.
    header.get_ref<Json::object_t&>().emplace_back(
        name,
        Json{{"dtype", to_string(piece->type)}, {"shape", shape}, {"data_offsets", {begin, end}}});
    begin = end;
  }
  std::string text = header.dump();
  text.append((length_bytes - text.size() % length_bytes) % length_bytes, ' ');
  return text;
}

/// The header's length as the format wants it: eight bytes, little-endian.
std::string length_text(std::size_t header) {
  std::string text;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    text += static_cast<char>(static_cast<unsigned char>(header >> (8 * i)));
  }
  return text;
}

/// The piece's elements as the file has them: in place where memory does, else gathered in `room`.
const std::byte* dense_data(const TensorPiece& piece, std::vector<std::byte>& room) {
  auto* data = static_cast<std::byte*>(piece.data);
  if (is_dense(piece.box, piece.strides)) return data;
  room.resize(bytes_of(piece));
  copy_box(piece.box, {piece.box, piece.strides, data},
           {piece.box, dense_strides(piece.box), room.data()}, element_bytes(piece.type));
  return room.data();
}

/// Writes one rank's file and notes in `written` what the index needs to know of it.
void write_file(const fs::path& path, const std::vector<TensorPiece>& pieces,
                WrittenFile& written) {
  const std::vector<const TensorPiece*> order = in_file_order(pieces);
  std::string header = header_of(order);
  header.insert(0, length_text(header.size()));
  SyncedFile file(path);
  file.write(header);
  written.file.header_bytes = header.size();
  written.file.header_checksum = checksum_of(header.data(), header.size());
  std::uint64_t offset = header.size();
  std::vector<std::byte> room;
  for (const TensorPiece* piece : order) {
    const std::byte* data = dense_data(*piece, room);
    const std::uint64_t bytes = bytes_of(*piece);
    file.write(data, bytes);
    written.tensors.push_back({{piece->tensor, piece->type, piece->shape},
                               {{0, offset, piece->box, checksum_of(data, bytes)}}});
    offset += bytes;
  }
  file.close();
  written.file.bytes = offset;
}

/// A folder that did not become a checkpoint is worth nothing.
void discard(const fs::path& folder) noexcept {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError("cannot write " + folder.string(), error.message());
}

/// Every rank has written its file, and this host sees it in full length.
void check_written(const std::vector<WrittenFile>& files, const fs::path& folder) {
  std::vector<Problem> problems;
  for (const WrittenFile& written : files) {
    std::error_code error;
    const auto bytes = fs::file_size(folder / written.file.name, error);
    if (const Problem& failure = written.failure; !failure.problem.empty()) {
      problems.push_back({fmt::format("rank {}: {}", written.rank, failure.problem), failure.why,
                          failure.suggestion});
    } else if (error || bytes != written.file.bytes) {
      problems.push_back(
          {fmt::format("rank {}'s file is not in {}", written.rank, folder.string()),
           error ? error.message() : fmt::format("{} of {} bytes", bytes, written.file.bytes),
           "Give --out a folder that all hosts share."});
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::run_failed, std::move(problems));
}

/// Removes the files of an earlier attempt with more ranks.
void remove_strangers(const std::vector<WrittenFile>& files, const fs::path& folder) {
  std::set<std::string> names;
  for (const WrittenFile& written : files) names.insert(written.file.name);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!names.contains(entry.path().filename().string())) fs::remove(entry.path());
  }
}

/// The index of all ranks' pieces. A hole or an overlap is a bug of the program, not of the user.
CheckpointIndex index_of(const CheckpointState& state, const std::vector<WrittenFile>& files) {
  ProblemList problems;
  CheckpointIndex index = merge(state, files, problems);
  check_index(index, problems);
  if (!problems.empty()) throw Error(ErrorKind::internal, problems.problems());
  return index;
}

std::uint64_t put_index(const CheckpointIndex& index, const fs::path& folder) {
  const std::string text = to_json_text(index);
  SyncedFile file(folder / index_name);
  file.write(text);
  file.close();
  return text.size();
}

/// The folder gets its final name once everything in it is on the disk.
void rename_folder(const fs::path& from, const fs::path& to) {
  sync_folder(from);
  if (fs::exists(to)) {
    throw UserError("the checkpoint " + to.string() + " cannot be saved", "it is there already");
  }
  fs::rename(from, to);
  sync_folder(to.parent_path());
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path folder)
    : folder_(fs::absolute(folder).lexically_normal()) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();
  temporary_ = folder_.parent_path() / fmt::format(".{}.tmp", folder_.filename().string());
}

std::string CheckpointWriter::write(int rank, const std::vector<TensorPiece>& pieces) const {
  WrittenFile written;
  written.rank = rank;
  written.file.name = fmt::format("rank-{}.safetensors", rank);
  try {
    create_folder(temporary_);
    write_file(temporary_ / written.file.name, pieces, written);
  } catch (const SystemError& error) {
    written.failure = error.problems().front();
  }
  return to_json_text(written);
}

CheckpointReport CheckpointWriter::publish(const CheckpointState& state,
                                           const std::vector<std::string>& texts) const {
  const Stopwatch stopwatch;
  CheckpointReport report{state.step, 0, 0};
  try {
    std::vector<WrittenFile> files;
    for (const std::string& text : texts) files.push_back(written_file_from_json_text(text));
    check_written(files, temporary_);
    remove_strangers(files, temporary_);
    report.bytes = put_index(index_of(state, files), temporary_);
    for (const WrittenFile& written : files) report.bytes += written.file.bytes;
    rename_folder(temporary_, folder_);
  } catch (const fs::filesystem_error& error) {
    discard(temporary_);
    throw SystemError("cannot write " + folder_.string(), error.code().message());
  } catch (...) {
    discard(temporary_);
    throw;
  }
  report.seconds = stopwatch.elapsed_s();
  return report;
}

}  // namespace heteroperf
