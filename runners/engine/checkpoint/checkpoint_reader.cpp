// Opens a checkpoint that any number of ranks wrote under any plan. Everything but the data is
// checked at once, so that one message lists all that is wrong. A read may ask for any boxes of any
// tensors; each stored piece that overlaps one of them is read whole, checked and copied.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/checkpoint_index.hpp"
#include "runners/engine/checkpoint/held_tensor.hpp"

namespace heteroperf {
namespace fs = std::filesystem;
namespace {

/// A file read at any place. Throws UserError with the path and the system's words.
class SourceFile {
 public:
  explicit SourceFile(fs::path path)
      : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) fail(std::strerror(errno));
  }
  ~SourceFile() {
    if (file_ >= 0) ::close(file_);
  }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  void read(std::uint64_t offset, void* data, std::size_t bytes) const {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
      const ssize_t got = ::pread(file_, next, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::strerror(errno));
      if (got == 0) fail("it ends too early");
      next += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    throw UserError("cannot read " + path_.string(), why);
  }

  fs::path path_;
  int file_;
};

/// A folder without an index is no checkpoint; a folder with one is complete.
std::string read_index_text(const fs::path& folder) {
  const fs::path path = folder / index_name;
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw UserError(folder.string() + " is no checkpoint", fmt::format("it has no {}", index_name));
  }
  const auto bytes = fs::file_size(path, error);
  if (error) throw UserError("cannot read " + path.string(), error.message());
  std::string text(bytes, '\0');
  SourceFile(path).read(0, text.data(), text.size());
  return text;
}

}  // namespace

CheckpointReader::CheckpointReader(fs::path folder)
    : folder_(std::move(folder)),
      index_(index_from_json_text(read_index_text(folder_), (folder_ / index_name).string())) {
  ProblemList problems;
  for (const StoredFile& file : index_.files) check_file(file, problems);
  check_index(index_, problems);
  if (!problems.empty()) {
    std::vector<Problem> all = problems.problems();
    all.front().problem =
        fmt::format("the checkpoint {} is broken: {}", folder_.string(), all.front().problem);
    throw UserError(std::move(all));
  }
  for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
    by_name_.emplace(index_.tensors[i].tensor.name, i);
  }
}

/// The file has its full length and an undamaged header. The data are checked when they are read.
void CheckpointReader::check_file(const StoredFile& file, ProblemList& problems) const {
  const fs::path path = folder_ / file.name;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return problems.add(path.string() + " cannot be read", error.message());
  if (bytes != file.bytes) {
    return problems.add(fmt::format("{} has {} bytes", path.string(), bytes),
                        fmt::format("the index says {}", file.bytes));
  }
  if (file.header_bytes > bytes) {
    return problems.add(fmt::format("{} has {} bytes", path.string(), bytes),
                        fmt::format("the index says {} of header", file.header_bytes));
  }
  collect_problems(problems, [&] {
    std::string header(file.header_bytes, '\0');
    SourceFile(path).read(0, header.data(), header.size());
    if (checksum_of(header.data(), header.size()) == file.header_checksum) return;
    problems.add("the header of " + path.string() + " does not match its checksum",
                 "the file was damaged after it was saved");
  });
}

std::vector<StoredTensor> CheckpointReader::tensors() const {
  std::vector<StoredTensor> all;
  for (const IndexedTensor& indexed : index_.tensors) all.push_back(indexed.tensor);
  return all;
}

std::uint64_t CheckpointReader::bytes() const {
  std::uint64_t total = 0;
  for (const StoredFile& file : index_.files) total += file.bytes;
  return total;
}

void CheckpointReader::expect_graph(const std::string& graph_hash) const {
  if (state().graph_hash == graph_hash) return;
  throw UserError(fmt::format("the checkpoint {} is of another model", folder_.string()),
                  fmt::format("graph {}, this training has {}", state().graph_hash, graph_hash));
}

/// The tensor is there and has the type and shape of the training's.
void CheckpointReader::check_wanted(const TensorPiece& piece, ProblemList& problems) const {
  if (!has(piece.tensor)) {
    return problems.add(fmt::format("{} has no tensor {}", folder_.string(), piece.tensor));
  }
  const StoredTensor& tensor = index_.tensors[by_name_.at(piece.tensor)].tensor;
  const std::string wanted = described(piece.type, piece.shape);
  const std::string stored = described(tensor.type, tensor.shape);
  if (wanted == stored) return;
  problems.add(fmt::format("tensor {} is {} in {}", piece.tensor, stored, folder_.string()),
               "this training has " + wanted);
}

/// Fills `room` with the stored piece's bytes, which match their checksum.
void CheckpointReader::load(const IndexedTensor& indexed, const StoredPiece& piece,
                            std::vector<std::byte>& room) const {
  const fs::path path = folder_ / index_.files[piece.file].name;
  room.resize(piece.box.count() * element_bytes(indexed.tensor.type));
  SourceFile(path).read(piece.offset, room.data(), room.size());
  if (checksum_of(room.data(), room.size()) == piece.checksum) return;
  throw UserError(fmt::format("tensor {} {} in {} does not match its checksum", indexed.tensor.name,
                              to_string(piece.box), path.string()),
                  "the file was damaged after it was saved");
}

// All tensors are checked before the first byte is written, so that a refusal leaves the training
// as it was. Then the common part of every stored piece and the wanted one is copied.
void CheckpointReader::read(const std::vector<TensorPiece>& pieces) const {
  ProblemList problems;
  for (const TensorPiece& piece : pieces) check_wanted(piece, problems);
  problems.throw_if_any();
  std::vector<std::byte> room;
  for (const TensorPiece& wanted : pieces) {
    const IndexedTensor& indexed = index_.tensors[by_name_.at(wanted.tensor)];
    for (const StoredPiece& piece : indexed.pieces) {
      const Box both = intersection(piece.box, wanted.box);
      if (both.count() == 0) continue;
      load(indexed, piece, room);
      copy_box(both, {piece.box, dense_strides(piece.box), room.data()},
               {wanted.box, wanted.strides, static_cast<std::byte*>(wanted.data)},
               element_bytes(wanted.type));
    }
  }
}

// Goes on behind a damaged piece, so that one message names all of them.
void CheckpointReader::verify() const {
  ProblemList problems;
  std::vector<std::byte> room;
  for (const IndexedTensor& indexed : index_.tensors) {
    for (const StoredPiece& piece : indexed.pieces) {
      collect_problems(problems, [&] { load(indexed, piece, room); });
    }
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
