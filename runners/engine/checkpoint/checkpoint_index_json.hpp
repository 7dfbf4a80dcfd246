#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runners/engine/checkpoint/checkpoint_index.hpp"

namespace heteroperf {

/// index.json, one line per file and per tensor; its last key is the checksum of the rest.
std::string to_json_text(const CheckpointIndex& index);
/// Throws UserError with everything wrong; `origin` names the file.
CheckpointIndex index_from_json_text(std::string_view text, const std::string& origin);

/// As one rank tells another. from(to(x)) is x; text that is none is a bug.
std::string to_json_text(const WrittenFile& written);
WrittenFile written_file_from_json_text(const std::string& text);

/// One entry of a safetensors header.
struct HeaderEntry {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  ///< from the beginning of the data
};
/// The header's JSON, padded with spaces to a multiple of 8 bytes.
std::string safetensors_header(const std::vector<HeaderEntry>& entries);

}  // namespace heteroperf
