// Opens a checkpoint that any number of ranks wrote under any plan. Everything but the data is
// checked at once, so that one message lists all that is wrong. A read may ask for any boxes of any
// tensors; each stored piece that overlaps one of them is read whole, checked and copied.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
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

void add_all(const UserError& error, ProblemList& problems) {
  for (const Problem& problem : error.problems())
    problems.add(problem.problem, problem.why, problem.suggestion);
}

}  // namespace

/// The checked index, and the way from a tensor's name to the files that have its pieces.
class CheckpointReader::Implementation {
 public:
  explicit Implementation(fs::path folder)
      : folder_(std::move(folder)),
        index_(index_from_json_text(read_index_text(folder_), (folder_ / index_name).string())) {
    ProblemList problems;
    for (const StoredFile& file : index_.files) check_file(file, problems);
    check_index(index_, problems);
    if (!problems.empty()) throw named(problems);
    for (const IndexedTensor& indexed : index_.tensors) {
      by_name_.emplace(indexed.tensor.name, &indexed);
    }
  }

  const CheckpointIndex& index() const { return index_; }
  const fs::path& folder() const { return folder_; }
  const IndexedTensor* find(const std::string& name) const {
    const auto entry = by_name_.find(name);
    return entry == by_name_.end() ? nullptr : entry->second;
  }

  /// The tensor is there and has the type and shape of the training's.
  void check_wanted(const TensorPiece& piece, ProblemList& problems) const {
    const IndexedTensor* indexed = find(piece.tensor);
    if (indexed == nullptr) {
      return problems.add(fmt::format("{} has no tensor {}", folder_.string(), piece.tensor));
    }
    const std::string wanted = described(piece.type, piece.shape);
    const std::string stored = described(indexed->tensor.type, indexed->tensor.shape);
    if (wanted == stored) return;
    problems.add(fmt::format("tensor {} is {} in {}", piece.tensor, stored, folder_.string()),
                 "this training has " + wanted);
  }

  /// The stored piece's bytes, which match their checksum, until the next call.
  std::byte* bytes_of(const IndexedTensor& indexed, const StoredPiece& piece) {
    const StoredFile& file = index_.files[piece.file];
    room_.resize(piece.box.count() * element_bytes(indexed.tensor.type));
    SourceFile(folder_ / file.name).read(piece.offset, room_.data(), room_.size());
    if (checksum_of(room_.data(), room_.size()) != piece.checksum) {
      throw UserError(
          fmt::format("tensor {} {} in {} does not match its checksum", indexed.tensor.name,
                      to_string(piece.box), (folder_ / file.name).string()),
          "the file was damaged after it was saved");
    }
    return room_.data();
  }

  /// Copies the common part of every stored piece and the wanted one.
  void fill(const TensorPiece& wanted) {
    const IndexedTensor& indexed = *find(wanted.tensor);
    for (const StoredPiece& piece : indexed.pieces) {
      const Box both = intersection(piece.box, wanted.box);
      if (both.count() == 0) continue;
      copy_box(both, {piece.box, dense_strides(piece.box), bytes_of(indexed, piece)},
               {wanted.box, wanted.strides, static_cast<std::byte*>(wanted.data)},
               element_bytes(wanted.type));
    }
  }

 private:
  /// The file has its full length and an undamaged header. The data are checked when they are read.
  void check_file(const StoredFile& file, ProblemList& problems) const {
    const fs::path path = folder_ / file.name;
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) {
      return problems.add(path.string() + " cannot be read", error.message());
    }
    if (bytes != file.bytes) {
      return problems.add(fmt::format("{} has {} bytes", path.string(), bytes),
                          fmt::format("the index says {}", file.bytes));
    }
    if (file.header_bytes > bytes) {
      return problems.add(fmt::format("{} has {} bytes", path.string(), bytes),
                          fmt::format("the index says {} of header", file.header_bytes));
    }
    check_header(path, file, problems);
  }

  static void check_header(const fs::path& path, const StoredFile& file, ProblemList& problems) {
    try {
      std::string header(file.header_bytes, '\0');
      SourceFile(path).read(0, header.data(), header.size());
      if (checksum_of(header.data(), header.size()) == file.header_checksum) return;
      problems.add("the header of " + path.string() + " does not match its checksum",
                   "the file was damaged after it was saved");
    } catch (const UserError& error) {
      add_all(error, problems);
    }
  }

  UserError named(const ProblemList& problems) const {
    std::vector<Problem> all = problems.problems();
    all.front().problem =
        fmt::format("the checkpoint {} is broken: {}", folder_.string(), all.front().problem);
    return UserError(std::move(all));
  }

  fs::path folder_;
  CheckpointIndex index_;
  std::map<std::string, const IndexedTensor*> by_name_;
  std::vector<std::byte> room_;
};

CheckpointReader::CheckpointReader(fs::path folder)
    : implementation_(std::make_unique<Implementation>(std::move(folder))) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const CheckpointState& CheckpointReader::state() const { return implementation_->index().state; }

std::vector<StoredTensor> CheckpointReader::tensors() const {
  std::vector<StoredTensor> all;
  for (const IndexedTensor& indexed : implementation_->index().tensors) {
    all.push_back(indexed.tensor);
  }
  return all;
}

bool CheckpointReader::has(const std::string& tensor) const {
  return implementation_->find(tensor) != nullptr;
}

std::uint64_t CheckpointReader::bytes() const {
  std::uint64_t total = 0;
  for (const StoredFile& file : implementation_->index().files) total += file.bytes;
  return total;
}

void CheckpointReader::expect_graph(const std::string& graph_hash) const {
  if (state().graph_hash == graph_hash) return;
  throw UserError(
      fmt::format("the checkpoint {} is of another model", implementation_->folder().string()),
      fmt::format("graph {}, this training has {}", state().graph_hash, graph_hash));
}

// All tensors are checked before the first byte is written, so that a refusal leaves the training
// as it was.
void CheckpointReader::read(const std::vector<TensorPiece>& pieces) const {
  ProblemList problems;
  for (const TensorPiece& piece : pieces) implementation_->check_wanted(piece, problems);
  problems.throw_if_any();
  for (const TensorPiece& piece : pieces) implementation_->fill(piece);
}

// Goes on behind a damaged piece, so that one message names all of them.
void CheckpointReader::verify() const {
  ProblemList problems;
  for (const IndexedTensor& indexed : implementation_->index().tensors) {
    for (const StoredPiece& piece : indexed.pieces) {
      try {
        implementation_->bytes_of(indexed, piece);
      } catch (const UserError& error) {
        add_all(error, problems);
      }
    }
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
