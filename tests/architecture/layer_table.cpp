#include "tests/architecture/layer_table.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace heteroperf::architecture {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Layer read_layer(const Words& words) {
  if (words.size() < 3)
    throw std::runtime_error("a layer needs folder, level and what it includes");
  Layer layer{words[0], std::stoi(words[1]), {words.begin() + 2, words.end()}};
  std::erase(layer.may_include, "-");
  return layer;
}

HeaderRule read_rule(const Words& words) {
  if (words.size() < 2) throw std::runtime_error("a header needs at least one pattern");
  HeaderRule rule{words[0], {}, {}};
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    const bool out = word->starts_with('!');
    (out ? rule.excluded : rule.allowed).push_back(out ? word->substr(1) : *word);
  }
  return rule;
}

HouseLimit read_limit(const Words& words) {
  if (words.size() != 3 || (words[1] != "at_most" && words[1] != "at_least")) {
    throw std::runtime_error("a limit needs a key, at_most or at_least, and a number");
  }
  return {words[0], words[1] == "at_least", std::stod(words[2])};
}

void append(Words& list, const Words& words) {
  list.insert(list.end(), words.begin(), words.end());
}

void read_row(LayerTable& table, const std::string& section, const Words& words) {
  if (section == "layers") return table.layers.push_back(read_layer(words));
  if (section == "third-party") return table.third_party.push_back(read_rule(words));
  if (section == "limits") return table.limits.push_back(read_limit(words));
  const std::map<std::string, Words*> lists = {{"sealed", &table.sealed},
                                               {"system", &table.system},
                                               {"forbidden-names", &table.forbidden_names},
                                               {"top-level", &table.top_level},
                                               {"not-tracked", &table.not_tracked}};
  const auto list = lists.find(section);
  if (list == lists.end()) throw std::runtime_error("unknown section [" + section + "]");
  append(*list->second, words);
}

void require_downward(const LayerTable& table) {
  for (const Layer& layer : table.layers) {
    for (const std::string& below : layer.may_include) {
      const Layer* other = table.layer_of(below);
      if (other == nullptr || other->folder != below) {
        throw std::runtime_error(layer.folder + " may include " + below + ", which has no row");
      }
      if (other->level >= layer.level) {
        throw std::runtime_error(layer.folder + " may include " + below +
                                 ", which does not stand below it");
      }
    }
  }
}

}  // namespace

bool names_header(std::string_view rule, std::string_view header) {
  return rule.ends_with('/') ? header.starts_with(rule) : header == rule;
}

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() != '*') {
    return !path.empty() && pattern.front() == path.front() &&
           matches(pattern.substr(1), path.substr(1));
  }
  const bool across = pattern.starts_with("**");
  const std::string_view rest = pattern.substr(across ? 2 : 1);
  // "**/x" also means "x" itself.
  if (across && rest.starts_with('/') && matches(rest.substr(1), path)) return true;
  for (std::size_t taken = 0; taken <= path.size(); ++taken) {
    if (matches(rest, path.substr(taken))) return true;
    if (!across && taken < path.size() && path[taken] == '/') return false;
  }
  return false;
}

bool matches_any(const std::vector<std::string>& patterns, std::string_view path) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return matches(pattern, path); });
}

const Layer* LayerTable::layer_of(std::string_view path) const {
  const Layer* found = nullptr;
  for (const Layer& layer : layers) {
    const bool inside = path == layer.folder || path.starts_with(layer.folder + '/');
    if (inside && (found == nullptr || layer.folder.size() > found->folder.size())) found = &layer;
  }
  return found;
}

const HeaderRule* LayerTable::rule_of(std::string_view header) const {
  const auto rule = std::ranges::find_if(
      third_party, [&](const HeaderRule& r) { return names_header(r.header, header); });
  return rule == third_party.end() ? nullptr : &*rule;
}

bool LayerTable::is_system(std::string_view header) const {
  if (header.find_first_of("./") == std::string_view::npos) return true;
  return std::ranges::any_of(system, [&](const auto& rule) { return names_header(rule, header); });
}

bool LayerTable::is_sealed(std::string_view header) const {
  return std::ranges::any_of(sealed, [&](const auto& rule) { return names_header(rule, header); });
}

LayerTable read_layer_table(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) throw std::runtime_error("cannot read " + file.string());
  LayerTable table;
  std::string section;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const Words words = words_of(line);
    if (words.empty()) continue;
    if (words.size() == 1 && words[0].starts_with('[') && words[0].ends_with(']')) {
      section = words[0].substr(1, words[0].size() - 2);
      continue;
    }
    try {
      read_row(table, section, words);
    } catch (const std::exception& error) {
      throw std::runtime_error(file.string() + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  require_downward(table);
  return table;
}

}  // namespace heteroperf::architecture
