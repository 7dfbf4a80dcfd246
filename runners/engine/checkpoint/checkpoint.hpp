#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/field_list.hpp"
#include "runners/cluster/layout.hpp"

namespace heteroperf {

class Communicator;

/// Element types of stored tensors, by their safetensors names ("F32").
enum class StoredType { f32, f64, bf16, i64 };
constexpr std::array<const char*, 4> value_names(StoredType) {
  return {"F32", "F64", "BF16", "I64"};
}
std::size_t element_bytes(StoredType type);

/// Part of one tensor, in this rank's memory: read from by a writer, written to by a reader.
struct TensorPiece {
  using Strides = std::array<std::int64_t, max_layout_dims>;

  std::string tensor;  ///< "h0.qkv.weight", "optimizer.first_moment/h0.qkv.weight"
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  ///< the whole tensor's
  Box box;                          ///< within the whole tensor; may be empty
  Strides strides{};                ///< elements from one to the next along each dimension
  void* data = nullptr;             ///< the element at `box.first`
};

/// Strides of a dense row-major memory of this box.
TensorPiece::Strides dense_strides(const Box& box);
/// All elements of a tensor of that shape.
Box whole_box(const std::vector<std::int64_t>& shape);

/// The position of a training at the moment when its tensors were stored.
struct CheckpointState {
  std::string workload;    ///< "llm"
  std::string graph_hash;  ///< ModelGraph::hash(), 32 digits
  std::string training;    ///< digest of recipe, data and batch; compared as text, may be empty
  std::uint64_t seed = 0;
  std::uint64_t step = 0;            ///< optimizer steps done: number of the next StepReport
  std::uint64_t optimizer_step = 0;  ///< updates made: fewer, where a loss was not finite
  std::uint64_t data_position = 0;   ///< samples of the endless pass over the training split
  friend bool operator==(const CheckpointState&, const CheckpointState&) = default;
  HETEROPERF_FIELDS(workload, graph_hash, training, seed, step, optimizer_step, data_position);
};

/// The cost of saving one checkpoint.
struct CheckpointReport {
  std::uint64_t step = 0, bytes = 0;
  double seconds = 0;
};

/// Writes one checkpoint folder: every rank its safetensors file, then one rank the index, under a
/// temporary name beside `folder` that becomes `folder` when all is on disk. A checkpoint that is
/// there is therefore whole. All ranks see one file system.
///
///     CheckpointWriter writer(folder);
///     const auto texts = gather_texts(world, writer.write(rank, pieces));  // every rank
///     if (rank == 0) report = writer.publish(state, texts);
///
/// save_checkpoint() does that over a communicator.
class CheckpointWriter {
 public:
  /// `folder`: "…/checkpoints/step-120", not there yet; its parents are made.
  explicit CheckpointWriter(std::filesystem::path folder);

  /// Writes and syncs this rank's file; empty boxes are left out. Returns the list of what it holds
  /// as text, or, instead of throwing, why it could not be written: every rank must get to
  /// publish(). Pieces of one rank may not overlap.
  std::string write(int rank, const std::vector<TensorPiece>& pieces) const;

  /// On one rank, with the texts of all in rank order: checks that every tensor is covered exactly
  /// once, writes the index, renames the folder into place. Throws SystemError with every rank's
  /// failure (disk full, …), UserError where something is already at `folder`; nothing is left of
  /// this checkpoint then, and older ones are untouched. Gaps and overlaps are
  /// SystemError{internal}.
  CheckpointReport publish(const CheckpointState& state,
                           const std::vector<std::string>& texts) const;

 private:
  std::filesystem::path folder_, temporary_;
};

/// Saves `folder` ("…/checkpoints/step-120") from all ranks of `world`. Collective; the report is
/// the same on every rank. What CheckpointWriter::publish() throws is thrown on every rank.
CheckpointReport save_checkpoint(Communicator& world, const std::filesystem::path& folder,
                                 const CheckpointState& state,
                                 const std::vector<TensorPiece>& pieces);

/// The cost of moving the state of a training between ranks.
struct MoveReport {
  std::uint64_t bytes = 0;  ///< that ranks sent to one another, summed over all of them
  double seconds = 0;       ///< on this rank, waiting for the others included
};

/// Fills the pieces `wanted` of this rank from the pieces `held` of all ranks, which cover each
/// wanted tensor; where several ranks hold an element they hold the same bits. Collective. The two
/// lists do not overlap in memory. Meanwhile a rank needs as much memory again as both lists have.
/// Throws Error{internal} on every rank, before anything is moved, where a wanted element is held
/// by no rank or ranks describe a tensor differently; and what the transport's waits throw.
MoveReport move_pieces(Communicator& world, const std::vector<TensorPiece>& held,
                       const std::vector<TensorPiece>& wanted);

/// A tensor as stored, whatever its pieces.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
};

/// One rank's file.
struct StoredFile {
  std::string name;  ///< "rank-0.safetensors"
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  ///< where the data begin
  std::string header_checksum;
  HETEROPERF_FIELDS(name, bytes, header_bytes, header_checksum);
};

/// Where a box of a tensor lies: dense and row-major in one file.
struct StoredPiece {
  std::size_t file = 0;      ///< into CheckpointIndex::files
  std::uint64_t offset = 0;  ///< from the file's beginning
  Box box;
  std::string checksum;
};

struct IndexedTensor {
  StoredTensor tensor;
  std::vector<StoredPiece> pieces;
};

/// The content of index.json.
struct CheckpointIndex {
  CheckpointState state;
  std::vector<StoredFile> files;
  std::vector<IndexedTensor> tensors;  ///< by name
};

/// Reads a checkpoint folder, whatever sharding it was saved with. Usable from one thread.
class CheckpointReader {
 public:
  /// Reads the index and looks at the files. Throws UserError with everything wrong: index missing
  /// or damaged, files missing, of other lengths or with other headers, tensors whose pieces
  /// overlap or leave gaps.
  explicit CheckpointReader(std::filesystem::path folder);

  const CheckpointState& state() const { return index_.state; }
  /// In the order of the index.
  std::vector<StoredTensor> tensors() const;
  bool has(const std::string& tensor) const { return by_name_.contains(tensor); }
  std::uint64_t bytes() const;

  /// Throws UserError unless the checkpoint is of this graph.
  void expect_graph(const std::string& graph_hash) const;
  /// Fills every piece. Throws UserError, before anything is written to any piece, with every
  /// tensor that is missing or of another type or shape; and while reading, where data do not match
  /// their checksum.
  void read(const std::vector<TensorPiece>& pieces) const;
  /// Reads everything once and throws UserError with every piece that does not match its checksum.
  void verify() const;

 private:
  void check_file(const StoredFile& file, ProblemList& problems) const;
  void check_wanted(const TensorPiece& piece, ProblemList& problems) const;
  void load(const IndexedTensor& tensor, const StoredPiece& piece,
            std::vector<std::byte>& room) const;

  std::filesystem::path folder_;
  CheckpointIndex index_;
  std::map<std::string, std::size_t> by_name_;  ///< into CheckpointIndex::tensors
};

/// The checkpoints of one run: `<run>/checkpoints/step-120/`, …
struct CheckpointPlace {
  std::filesystem::path folder;
  std::uint64_t step = 0;
};

/// "…/checkpoints/step-120" of the run in `run_folder`.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder,
                                        std::uint64_t step);

/// The newest first, broken ones too; none where there is no such folder.
std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& run_folder);

/// The newest checkpoint that is whole and matches its checksums (all data are read), at `step`
/// where that is given. Each newer one that is not adds a warning. Throws UserError when none is
/// left, with everything that is wrong with those there are.
CheckpointPlace last_good_checkpoint(const std::filesystem::path& run_folder,
                                     std::optional<std::uint64_t> step,
                                     std::vector<std::string>& warnings);

/// Removes all but the newest `keep` (0: removes none) and what interrupted saves left. What the
/// system refuses to remove is a warning.
void prune_checkpoints(const std::filesystem::path& run_folder, std::uint64_t keep,
                       std::vector<std::string>& warnings);

}  // namespace heteroperf
