#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// The part of the index that one rank wrote, or the reason why it could not.
struct WrittenFile {
  int rank = 0;
  StoredFile file;
  std::vector<IndexedTensor> tensors;  ///< one for each piece
  Problem failure;                     ///< `problem` empty: it is written
};

inline constexpr const char* index_name = "index.json";

/// Writes a type and a shape as "F32 [4x3]".
std::string described(StoredType type, const std::vector<std::int64_t>& shape);

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

/// index.json, one line per file and per tensor; its last key is the checksum of the rest.
std::string to_json_text(const CheckpointIndex& index);
/// Throws UserError with everything wrong; `origin` names the file.
CheckpointIndex index_from_json_text(std::string_view text, const std::string& origin);

/// As one rank tells another. from(to(x)) is x; text that is none is a bug.
std::string to_json_text(const WrittenFile& written);
WrittenFile written_file_from_json_text(const std::string& text);

/// Boxes that one rank tells another, without places in files. from(to(x)) is x; text that is none
/// is a bug.
std::string pieces_json_text(const std::vector<IndexedTensor>& tensors);
std::vector<IndexedTensor> pieces_from_json_text(const std::string& text);

}  // namespace heteroperf
