// The index as JSON. Readers name every fault by its path in the document.
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

template <WithFields T>
void put_fields(Json& json, const T& value) {
  visit_fields(value, [&](const std::string& key, const auto& member) { json[key] = member; });
}

Json to_json(const StoredFile& file) {
  Json json;
  put_fields(json, file);
  return json;
}

Json to_json(const IndexedTensor& indexed) {
  const auto& [name, type, shape] = indexed.tensor;
  Json json{{"name", name}, {"dtype", to_string(type)}, {"shape", shape}};
  json["pieces"] = Json::array();
  for (const StoredPiece& piece : indexed.pieces) {
    json["pieces"].push_back({{"file", piece.file},
                              {"first", corner(piece.box, piece.box.first)},
                              {"last", corner(piece.box, piece.box.last)},
                              {"offset", piece.offset},
                              {"checksum", piece.checksum}});
  }
  return json;
}

/// The document without its lists and its checksum. A seed may need all digits of 64 bits.
Json head_of(const CheckpointState& state) {
  Json json{{"_format", format_name}, {"_version", format_version}};
  put_fields(json, state);
  json["seed"] = std::to_string(state.seed);
  return json;
}

std::string checksum_of_document(const Json& document) {
  const std::string text = document.dump();
  return checksum_of(text.data(), text.size());
}

template <WithFields T>
void require_fields(ObjectReader& reader) {
  for (const std::string& key : keys_of_fields<T>()) reader.require({key.c_str()});
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
  require_fields<StoredFile>(reader);
  visit_fields(file,
               [&](const std::string& key, auto& member) { reader.read(key.c_str(), member); });
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
  require_fields<CheckpointState>(reader);
  reader.require({"files", "tensors", "checksum"});
  visit_fields(state, [&](const std::string& key, auto& member) {
    if (key != "seed") reader.read(key.c_str(), member);
  });
  read_seed(reader, state.seed);
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

}  // namespace

std::string to_json_text(const CheckpointIndex& index) {
  Json document = head_of(index.state);
  std::string text = document.dump();
  text.pop_back();
  const auto add_list = [&](const char* key, const auto& values) {
    Json& list = document[key];
    text += fmt::format(",\n\"{}\":[", key);
    for (const auto& value : values) {
      text += list.empty() ? "\n" : ",\n";
      text += list.emplace_back(to_json(value)).dump();
    }
    text += "]";
  };
  add_list("files", index.files);
  add_list("tensors", index.tensors);
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

namespace {

/// The lists of one rank, as read_lists() takes them.
Json lists_of(const StoredFile& file, const std::vector<IndexedTensor>& tensors) {
  Json json{{"files", Json::array({to_json(file)})}, {"tensors", Json::array()}};
  for (const IndexedTensor& tensor : tensors) json["tensors"].push_back(to_json(tensor));
  return json;
}

}  // namespace

std::string pieces_json_text(const std::vector<IndexedTensor>& tensors) {
  return lists_of({}, tensors).dump();
}

std::vector<IndexedTensor> pieces_from_json_text(const std::string& text) {
  const Json json = Json::parse(text);
  DocumentProblems problems("a rank's list");
  ObjectReader reader(json, "", problems);
  CheckpointIndex part;
  read_lists(reader, part);
  problems.throw_if_any();
  return std::move(part.tensors);
}

std::string to_json_text(const WrittenFile& written) {
  const Problem& failure = written.failure;
  Json json = lists_of(written.file, written.tensors);
  json["rank"] = written.rank;
  json["failure"] = {failure.problem, failure.why, failure.suggestion};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

WrittenFile written_file_from_json_text(const std::string& text) {
  const Json json = Json::parse(text), &failure = json.at("failure");
  DocumentProblems problems("a rank's list");
  ObjectReader reader(json, "", problems);
  CheckpointIndex part;
  read_lists(reader, part);
  problems.throw_if_any();
  return {json.at("rank"),
          part.files.at(0),
          std::move(part.tensors),
          {failure[0], failure[1], failure[2]}};
}

}  // namespace heteroperf
