#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// One rank's file.
struct StoredFile {
  std::string name;  ///< "rank-0.safetensors"
  std::uint64_t bytes = 0;
  std::uint64_t header_bytes = 0;  ///< where the data begin
  std::string header_checksum;
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

/// What index.json says.
struct CheckpointIndex {
  CheckpointState state;
  std::vector<StoredFile> files;
  std::vector<IndexedTensor> tensors;  ///< by name
};

/// What one rank wrote, or why it could not.
struct WrittenFile {
  struct Piece {
    StoredTensor tensor;
    Box box;
    std::uint64_t offset = 0;
    std::string checksum;
  };
  int rank = 0;
  StoredFile file;
  std::vector<Piece> pieces;
  Problem failure;  ///< `problem` empty: it is written
};

inline constexpr const char* index_name = "index.json";

/// 32 digits over bytes as they lie in the file.
std::string checksum_of(const void* data, std::size_t bytes);

/// Elements of the shape; none where an extent is negative, dimensions are too many or the
/// elements' bytes do not fit 62 bits.
std::optional<std::uint64_t> stored_count(const std::vector<std::int64_t>& shape);

/// Notes whatever keeps the pieces from covering each tensor exactly once, and pieces outside of
/// their tensor or their file.
void check_index(const CheckpointIndex& index, ProblemList& problems);

/// The ranks' lists as one index. Notes tensors that ranks describe differently.
CheckpointIndex merge(const CheckpointState& state, const std::vector<WrittenFile>& files,
                      ProblemList& problems);

}  // namespace heteroperf
