#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/strict_json.hpp"
#include "runners/plan/rivals/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// Reads one file of nested objects whose keys are data.
/// Keys of these files are data, so every object is walked instead of being asked for known keys.
class SailorTableFile {
 public:
  explicit SailorTableFile(const std::filesystem::path& file)
      : problems_(file.string()), document_(read_document(file)) {}

  const Json& document() const { return document_; }
  DocumentProblems& problems() { return problems_; }

  /// Calls `visit(key, value, path)` with each entry of an object.
  template <class Visit>
  void for_each(const Json& object, const std::string& path, Visit visit) {
    if (!object.is_object()) {
      note_wrong(object, path.empty() ? "the document" : path, "an object", problems_);
      return;
    }
    for (const auto& [key, value] : object.items()) {
      if (problems_.full()) return;
      visit(key, value, path.empty() ? key : path + "." + key);
    }
  }

  /// The whole number that a key is; nothing, and a note, where it is none.
  std::optional<std::int64_t> number(const std::string& key, const std::string& path,
                                     std::int64_t least, std::int64_t most);

  /// Reads an object whose keys are the layers 0 … n−1, each once. `read(value, path)` gives an
  /// element; a layer left out is noted.
  template <class Element, class Read>
  std::vector<Element> layers(const Json& object, const std::string& path, Read read) {
    std::map<std::int64_t, Element> by_layer;
    for_each(object, path, [&](const std::string& key, const Json& value, const std::string& at) {
      if (const auto layer = number(key, at, 0, 100000)) by_layer.emplace(*layer, read(value, at));
    });
    std::vector<Element> list;
    for (const auto& [layer, element] : by_layer) {
      if (layer != static_cast<std::int64_t>(list.size())) {
        problems_.add(fmt::format("{} has no layer {}", path, list.size()));
        break;
      }
      list.push_back(element);
    }
    if (object.is_object() && by_layer.empty()) problems_.add(path + " has no layers");
    return list;
  }

 private:
  static Json read_document(const std::filesystem::path& file);

  DocumentProblems problems_;
  Json document_;
};

/// Reads a list of exactly `count` finite numbers, none below `least`. Anything else is noted and
/// gives zeros.
std::vector<double> read_numbers(const Json& value, const std::string& path, std::size_t count,
                                 double least, DocumentProblems& problems);

/// Reads the bandwidths between nodes, Sailor's network file, into `inputs.network`.
void read_sailor_network(const std::filesystem::path& file, SailorInputs& inputs);

}  // namespace heteroperf
