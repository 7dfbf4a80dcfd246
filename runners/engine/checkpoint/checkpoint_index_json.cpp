// The index as JSON, and the headers of the safetensors files. Readers name every fault by its path
// in the document.
#include "runners/engine/checkpoint/checkpoint_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "metrics/base/name_table.hpp"
#include "metrics/base/strict_json.hpp"

namespace heteroperf {
namespace {

constexpr const char* format_name = "heteroperf-checkpoint";
constexpr int format_version = 1;

Json corner(const Box& box, const Box::Position& at) {
  Json list = Json::array();
  for (std::size_t dim = 0; dim < box.dims; ++dim) list.push_back(at[dim]);
  return list;
}

Json to_json(const StoredFile& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"header_bytes", file.header_bytes},
          {"header_checksum", file.header_checksum}};
}

void put_place(Json& json, const Box& box, std::uint64_t offset, const std::string& checksum) {
  json["first"] = corner(box, box.first);
  json["last"] = corner(box, box.last);
  json["offset"] = offset;
  json["checksum"] = checksum;
}

void put_tensor(Json& json, const StoredTensor& tensor) {
  json["name"] = tensor.name;
  json["dtype"] = to_string(tensor.type);
  json["shape"] = tensor.shape;
}

Json to_json(const IndexedTensor& indexed) {
  Json json;
  put_tensor(json, indexed.tensor);
  json["pieces"] = Json::array();
  for (const StoredPiece& piece : indexed.pieces) {
    Json entry{{"file", piece.file}};
    put_place(entry, piece.box, piece.offset, piece.checksum);
    json["pieces"].push_back(std::move(entry));
  }
  return json;
}

/// The document without its lists and its checksum.
Json head_of(const CheckpointState& state) {
  return {{"_format", format_name},
          {"_version", format_version},
          {"workload", state.workload},
          {"graph_hash", state.graph_hash},
          {"training", state.training},
          {"seed", std::to_string(state.seed)},
          {"step", state.step},
          {"optimizer_step", state.optimizer_step},
          {"data_position", state.data_position}};
}

std::string checksum_of_document(const Json& document) {
  const std::string text = document.dump();
  return checksum_of(text.data(), text.size());
}

template <class Value>
void add_lines(std::string& text, const char* key, const std::vector<Value>& values) {
  text += fmt::format(",\n\"{}\":[", key);
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i ? ",\n" : "\n") + to_json(values[i]).dump();
  }
  text += "]";
}

void read_tensor(ObjectReader& reader, StoredTensor& tensor) {
  reader.require({"name", "dtype", "shape", "pieces"});
  reader.read("name", tensor.name);
  reader.read("dtype", tensor.type);
  reader.read("shape", tensor.shape, std::int64_t{0}, INT64_MAX);
}

/// Both corners must have as many numbers as the tensor has dimensions.
Box read_box(ObjectReader& reader, const std::vector<std::int64_t>& shape) {
  Box box;
  box.dims = std::min(shape.size(), max_layout_dims);
  for (auto [key, at] : {std::pair("first", &box.first), std::pair("last", &box.last)}) {
    std::vector<std::int64_t> values;
    reader.read(key, values);
    if (reader.has(key) && values.size() != shape.size()) {
      note_wrong(*reader.value(key), reader.path_of(key),
                 fmt::format("{} whole numbers", shape.size()), reader.problems());
    }
    std::copy_n(values.begin(), std::min(values.size(), box.dims), at->begin());
  }
  return box;
}

StoredPiece read_piece(const Json& json, const std::string& path, const StoredTensor& tensor,
                       std::size_t files, DocumentProblems& problems) {
  ObjectReader reader(json, path, problems);
  StoredPiece piece;
  std::int64_t file = 0;
  reader.require({"file", "first", "last", "offset", "checksum"});
  reader.read("file", file, std::int64_t{0}, static_cast<std::int64_t>(files) - 1);
  reader.read("offset", piece.offset);
  reader.read("checksum", piece.checksum);
  piece.box = read_box(reader, tensor.shape);
  piece.file = file;
  reader.finish();
  return piece;
}

StoredFile read_file(const Json& json, const std::string& path, DocumentProblems& problems) {
  ObjectReader reader(json, path, problems);
  StoredFile file;
  reader.require({"name", "bytes", "header_bytes", "header_checksum"});
  reader.read("name", file.name);
  reader.read("bytes", file.bytes);
  reader.read("header_bytes", file.header_bytes);
  reader.read("header_checksum", file.header_checksum);
  reader.finish();
  if (file.name.find('/') != std::string::npos) {
    problems.add(fmt::format("{}.name is {}", path, shown(file.name)),
                 "must be a file of the folder itself");
  }
  return file;
}

void read_seed(ObjectReader& reader, std::uint64_t& seed) {
  std::string text = "0";
  reader.read("seed", text);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return;
  note_wrong(text, reader.path_of("seed"), "a whole number as text", reader.problems());
}

void read_state(ObjectReader& reader, CheckpointState& state) {
  reader.expect_format(format_name, format_version);
  reader.require({"workload", "graph_hash", "training", "seed", "step", "optimizer_step",
                  "data_position", "files", "tensors", "checksum"});
  reader.read("workload", state.workload);
  reader.read("graph_hash", state.graph_hash);
  reader.read("training", state.training);
  read_seed(reader, state.seed);
  reader.read("step", state.step);
  reader.read("optimizer_step", state.optimizer_step);
  reader.read("data_position", state.data_position);
}

void read_lists(ObjectReader& reader, CheckpointIndex& index) {
  DocumentProblems& problems = reader.problems();
  reader.for_each("files", [&](const Json& json, const std::string& path) {
    index.files.push_back(read_file(json, path, problems));
  });
  reader.for_each("tensors", [&](const Json& json, const std::string& path) {
    ObjectReader entry(json, path, problems);
    IndexedTensor& indexed = index.tensors.emplace_back();
    read_tensor(entry, indexed.tensor);
    entry.for_each("pieces", [&](const Json& piece, const std::string& piece_path) {
      indexed.pieces.push_back(
          read_piece(piece, piece_path, indexed.tensor, index.files.size(), problems));
    });
    entry.finish();
  });
}

void check_checksum(Json document, ObjectReader& reader) {
  std::string stored;
  reader.read("checksum", stored);
  if (!document.is_object()) return;
  document.erase("checksum");
  if (checksum_of_document(document) == stored) return;
  reader.problems().add("the index does not match its checksum",
                        "it was changed after it was saved");
}

Box box_of(const Json& json) {
  Box box;
  box.dims = json["first"].size();
  for (std::size_t dim = 0; dim < box.dims; ++dim) {
    box.first[dim] = json["first"][dim];
    box.last[dim] = json["last"][dim];
  }
  return box;
}

}  // namespace

std::string to_json_text(const CheckpointIndex& index) {
  Json document = head_of(index.state);
  std::string text = document.dump();
  text.pop_back();
  add_lines(text, "files", index.files);
  add_lines(text, "tensors", index.tensors);
  for (const StoredFile& file : index.files) document["files"].push_back(to_json(file));
  for (const IndexedTensor& tensor : index.tensors) document["tensors"].push_back(to_json(tensor));
  return text + fmt::format(",\n\"checksum\":\"{}\"}}\n", checksum_of_document(document));
}

CheckpointIndex index_from_json_text(std::string_view text, const std::string& origin) {
  const Json document = parse_strict_json(text, origin, format_name);
  DocumentProblems problems(origin);
  ObjectReader reader(document, "", problems);
  CheckpointIndex index;
  read_state(reader, index.state);
  read_lists(reader, index);
  reader.finish();
  if (problems.empty()) check_checksum(document, reader);
  problems.throw_if_any();
  return index;
}

std::string to_json_text(const WrittenFile& written) {
  const Problem& failure = written.failure;
  Json json{{"rank", written.rank},
            {"failure", {failure.problem, failure.why, failure.suggestion}}};
  json["file"] = to_json(written.file);
  json["pieces"] = Json::array();
  for (const WrittenFile::Piece& piece : written.pieces) {
    Json entry;
    put_tensor(entry, piece.tensor);
    put_place(entry, piece.box, piece.offset, piece.checksum);
    json["pieces"].push_back(std::move(entry));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WrittenFile written_file_from_json_text(const std::string& text) {
  const Json json = Json::parse(text);
  const Json& file = json.at("file");
  WrittenFile written{
      json.at("rank"),
      {file.at("name"), file.at("bytes"), file.at("header_bytes"), file.at("header_checksum")},
      {},
      {json.at("failure")[0], json.at("failure")[1], json.at("failure")[2]}};
  for (const Json& piece : json.at("pieces")) {
    written.pieces.push_back(
        {{piece.at("name"), find_value<StoredType>(piece.at("dtype")).value(), piece.at("shape")},
         box_of(piece),
         piece.at("offset"),
         piece.at("checksum")});
  }
  return written;
}

std::string safetensors_header(const std::vector<HeaderEntry>& entries) {
  constexpr std::size_t alignment = 8;
  Json header{{"__metadata__", {{"heteroperf", "checkpoint"}}}};
  for (const HeaderEntry& entry : entries) {
    // Not operator[] of a name: that looks through all names before.
    header.get_ref<Json::object_t&>().emplace_back(
        entry.name, Json{{"dtype", to_string(entry.type)},
                         {"shape", entry.shape},
                         {"data_offsets", {entry.begin, entry.end}}});
  }
  std::string text = header.dump();
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  return text;
}

}  // namespace heteroperf
