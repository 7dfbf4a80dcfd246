#include "tests/architecture/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>

namespace heteroperf::architecture {
namespace {

std::string at(const std::string& file, int line) {
  return file + ":" + std::to_string(line) + ": ";
}

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().generic_string();
}

bool allows(const Layer& from, const Layer& to) {
  return from.folder == to.folder ||
         std::ranges::find(from.may_include, to.folder) != from.may_include.end();
}

bool allows(const HeaderRule& rule, const std::string& file) {
  return matches_any(rule.allowed, file) && !matches_any(rule.excluded, file);
}

using Visit = std::function<void(const std::string& file, const Include& include)>;

void for_each_include(const SourceTree& tree, const Visit& visit) {
  for (const auto& [file, includes] : tree.files) {
    for (const Include& include : includes) visit(file, include);
  }
}

/// Folder → folders it includes, without a folder's own ancestors and descendants.
std::map<std::string, std::set<std::string>> folder_graph(const SourceTree& tree) {
  std::map<std::string, std::set<std::string>> graph;
  for_each_include(tree, [&](const std::string& file, const Include& include) {
    const std::string from = folder_of(file), to = folder_of(include.header);
    const bool related = from == to || from.starts_with(to + '/') || to.starts_with(from + '/');
    if (include.quoted && !related) graph[from].insert(to);
  });
  return graph;
}

/// Depth-first search for a ring through `path.front()`, along folders not smaller than it, so
/// that every ring is found once.
bool find_ring(const std::map<std::string, std::set<std::string>>& graph,
               std::vector<std::string>& path, std::set<std::string>& seen) {
  const auto next = graph.find(path.back());
  if (next == graph.end()) return false;
  for (const std::string& folder : next->second) {
    if (folder == path.front()) return true;
    if (folder < path.front() || !seen.insert(folder).second) continue;
    path.push_back(folder);
    if (find_ring(graph, path, seen)) return true;
    path.pop_back();
  }
  return false;
}

/// Every header of our own that `file` reaches, itself included.
void collect_reached(const SourceTree& tree, const std::string& file,
                     std::set<std::string>& reached) {
  if (!reached.insert(file).second) return;
  const auto known = tree.files.find(file);
  if (known == tree.files.end()) return;
  for (const Include& include : known->second) {
    if (include.quoted) collect_reached(tree, include.header, reached);
  }
}

bool is_forbidden(const std::string& stem, const std::vector<std::string>& words) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return stem == word || stem.ends_with("_" + word); });
}

bool is_test(const CMakeTarget& target) { return target.file.starts_with("tests/"); }

}  // namespace

Violations check_layers(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  for_each_include(tree, [&](const std::string& file, const Include& include) {
    if (!include.quoted) return;
    const Layer* from = table.layer_of(file);
    const Layer* to = table.layer_of(include.header);
    if (from == nullptr) {
      found.push_back(at(file, include.line) + "the file's folder has no row");
    } else if (to == nullptr) {
      found.push_back(at(file, include.line) + "\"" + include.header +
                      "\" is not written from the repository's root");
    } else if (!allows(*from, *to)) {
      found.push_back(at(file, include.line) + from->folder + " may not include " + to->folder +
                      " (\"" + include.header + "\")");
    }
  });
  return found;
}

Violations check_third_party(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  for_each_include(tree, [&](const std::string& file, const Include& include) {
    const HeaderRule* rule = table.rule_of(include.header);
    if (rule != nullptr && !allows(*rule, file)) {
      found.push_back(at(file, include.line) + "<" + include.header + "> is not allowed here");
    } else if (rule == nullptr && !include.quoted && !table.is_system(include.header)) {
      found.push_back(at(file, include.line) + "<" + include.header + "> is in no row");
    }
  });
  return found;
}

Violations check_sealed(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  for (const auto& [file, ignored] : tree.files) {
    std::set<std::string> reached;
    collect_reached(tree, file, reached);
    reached.erase(file);
    for (const std::string& through : reached) {
      const auto known = tree.files.find(through);
      if (known == tree.files.end()) continue;
      for (const Include& include : known->second) {
        const HeaderRule* rule = table.rule_of(include.header);
        if (rule == nullptr || !table.is_sealed(include.header) || allows(*rule, file)) continue;
        found.push_back(file + ": reaches <" + include.header + "> through " + through);
      }
    }
  }
  return found;
}

Violations check_cycles(const SourceTree& tree) {
  Violations found;
  const auto graph = folder_graph(tree);
  for (const auto& [folder, ignored] : graph) {
    std::vector<std::string> path = {folder};
    std::set<std::string> seen;
    if (!find_ring(graph, path, seen)) continue;
    std::string ring;
    for (const std::string& step : path) ring += step + " -> ";
    found.push_back("folders include each other: " + ring + folder);
  }
  return found;
}

Violations check_names(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  for (const std::string& path : tree.paths) {
    const std::string stem = std::filesystem::path(path).stem().string();
    if (is_forbidden(stem, table.forbidden_names)) {
      found.push_back(path + ": \"" + stem + "\" does not say what is inside");
    }
  }
  return found;
}

Violations check_type_names(const SourceTree& tree) {
  Violations found;
  std::map<std::string, std::string> first;
  for (const bool of_tests : {false, true}) {
    for (const auto& [file, types] : tree.types) {
      if (file.starts_with("tests/") != of_tests) continue;
      for (const TypeDefinition& type : types) {
        const std::string place = at(file, type.line);
        const auto known = of_tests ? first.find(type.name) : first.emplace(type.name, place).first;
        if (known == first.end() || known->second == place) continue;
        found.push_back(place + type.name + " is defined a second time (" + known->second +
                        "first)");
      }
    }
  }
  return found;
}

Violations check_top_level(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  std::vector<std::string> expected = table.top_level, extra, missing;
  std::ranges::sort(expected);
  std::ranges::set_difference(tree.top_level, expected, std::back_inserter(extra));
  std::ranges::set_difference(expected, tree.top_level, std::back_inserter(missing));
  for (const std::string& name : extra)
    found.push_back(name + ": does not belong to the top level");
  for (const std::string& name : missing) found.push_back(name + ": is missing at the top level");
  return found;
}

Violations check_targets(const SourceTree& tree, const LayerTable& table) {
  Violations found;
  std::map<std::string, const Layer*> owner;
  std::set<const Layer*> built;
  for (const CMakeTarget& target : tree.targets) {
    owner[target.name] = table.layer_of(target.file);
    built.insert(owner[target.name]);
  }
  for (const auto& [file, ignored] : tree.files) {
    const Layer* layer = table.layer_of(file);
    if (layer != nullptr && layer->folder != "tests" && built.insert(layer).second) {
      found.push_back(layer->folder + ": has C++ files and no CMake target");
    }
  }
  for (const CMakeTarget& target : tree.targets) {
    const Layer* from = owner[target.name];
    if (from == nullptr || is_test(target)) continue;
    for (const std::string& name : target.links) {
      const auto to = owner.find(name);
      if (to == owner.end() || to->second == nullptr || allows(*from, *to->second)) continue;
      found.push_back(target.file + ": " + target.name + " may not link heteroperf::" + name);
    }
  }
  return found;
}

Violations check_own_header(const SourceTree& tree) {
  Violations found;
  for (const auto& [file, includes] : tree.files) {
    const std::string header =
        std::filesystem::path(file).replace_extension(".hpp").generic_string();
    if (!file.ends_with(".cpp") || !tree.files.contains(header)) continue;
    if (includes.empty() || includes.front().header != header) {
      found.push_back(at(file, includes.empty() ? 1 : includes.front().line) + "\"" + header +
                      "\" is not included first");
    }
  }
  return found;
}

Violations check_limits(const HouseCount& house, const LayerTable& table) {
  Violations broken;
  for (const HouseLimit& limit : table.limits) {
    const HouseNumber* number = house.find(limit.key);
    if (number == nullptr) {
      broken.push_back("layers.txt: [limits] names " + limit.key + ", which is no number");
    } else if (limit.at_least ? number->value < limit.bound : number->value > limit.bound) {
      broken.push_back(fmt::format("{}: {} is {:.6g} (the limit is {} {:.6g})", limit.key,
                                   number->label, number->value,
                                   limit.at_least ? "at least" : "at most", limit.bound));
    }
  }
  return broken;
}

Violations check_all(const SourceTree& tree, const LayerTable& table) {
  Violations all;
  for (Violations part :
       {check_layers(tree, table), check_third_party(tree, table), check_sealed(tree, table),
        check_cycles(tree), check_names(tree, table), check_type_names(tree),
        check_top_level(tree, table), check_targets(tree, table), check_own_header(tree)}) {
    std::ranges::move(part, std::back_inserter(all));
  }
  return all;
}

}  // namespace heteroperf::architecture
