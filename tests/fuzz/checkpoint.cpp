// A checkpoint of one rank: index.json, a zero byte, rank-0.safetensors. The index is read as it
// is, and with the checksums that it would have.
#include <nlohmann/json.hpp>

#include "metrics/base/strict_json.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/checkpoint/checkpoint_index.hpp"
#include "tests/fuzz/hostile_input.hpp"

namespace heteroperf {
namespace {

std::string with_own_checksums(std::string_view text, std::string_view data) {
  Json index = parse_strict_json(text, "index.json");
  if (!index.is_object()) return std::string(text);
  for (Json& file : index["files"]) {
    if (!file.is_object() || !file.contains("header_bytes")) continue;
    const Json& bytes = file["header_bytes"];
    if (!bytes.is_number_unsigned() || bytes.get<std::uint64_t>() > data.size()) continue;
    file["header_checksum"] = checksum_of(data.data(), bytes.get<std::size_t>());
  }
  index.erase("checksum");
  const std::string rest = index.dump();
  index["checksum"] = checksum_of(rest.data(), rest.size());
  return index.dump();
}

void read_checkpoint(std::string_view index, std::string_view data) {
  const std::filesystem::path folder = input_folder().path() / "checkpoint";
  std::filesystem::create_directories(folder);
  input_folder().write("checkpoint/index.json", index);
  input_folder().write("checkpoint/rank-0.safetensors", data);
  read_hostile([&] {
    const CheckpointReader reader(folder);
    reader.tensors();
    reader.verify();
  });
}

}  // namespace
}  // namespace heteroperf

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heteroperf;
  std::string_view rest = text_of(data, size);
  const std::string_view index = take_part(rest);
  read_checkpoint(index, rest);
  read_hostile([&] { read_checkpoint(with_own_checksums(index, rest), rest); });
  return 0;
}
