#include "tests/architecture/source_tree.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <regex>

namespace heteroperf::architecture {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> cpp_extensions = {".hpp", ".cpp", ".h",
                                                            ".cc",  ".cu",  ".cuh"};

bool is_passed_over(const fs::path& path, const LayerTable& table) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || matches_any(table.not_tracked, name);
}

void read_file(const fs::path& file, const std::string& path, SourceTree& tree) {
  const std::string extension = file.extension().string();
  if (std::ranges::find(cpp_extensions, extension) != cpp_extensions.end()) {
    tree.files[path] = read_includes(read_text(file));
    if (extension == ".hpp") tree.types[path] = read_types(read_text(file));
  } else if (file.filename() == "CMakeLists.txt") {
    std::ranges::move(read_cmake_targets(read_text(file), path), std::back_inserter(tree.targets));
  }
}

void read_folder(const fs::path& root, const fs::path& folder, const LayerTable& table,
                 SourceTree& tree) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_passed_over(entry.path(), table)) continue;
    const std::string path = fs::relative(entry.path(), root).generic_string();
    tree.paths.insert(path);
    if (entry.is_directory() && !entry.is_symlink()) read_folder(root, entry.path(), table, tree);
    if (entry.is_regular_file()) read_file(entry.path(), path, tree);
  }
}

std::string without_block_comments(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find("/*", at);
    kept += text.substr(at, open - at);
    if (open == std::string::npos) break;
    const std::size_t close = std::min(text.find("*/", open + 2), text.size());
    kept.append(static_cast<std::size_t>(std::count(text.begin() + static_cast<long>(open),
                                                    text.begin() + static_cast<long>(close), '\n')),
                '\n');
    at = std::min(close + 2, text.size());
  }
  return kept;
}

std::vector<std::string> own_targets_in(const std::string& text) {
  static const std::regex own("heteroperf::([a-z_0-9]+)");
  std::vector<std::string> names;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), own);
       match != std::sregex_iterator(); ++match) {
    names.push_back((*match)[1]);
  }
  return names;
}

/// heteroperf_add_library(x) makes the target heteroperf_x, alias heteroperf::x.
std::string short_name(const std::string& name) {
  constexpr std::string_view prefix = "heteroperf_";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<Include> read_includes(const std::string& text) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::istringstream stream(without_block_comments(text));
  std::vector<Include> includes;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, include)) {
      includes.push_back({number, match[2], match[1] == "\""});
    }
  }
  return includes;
}

std::vector<TypeDefinition> read_types(const std::string& text) {
  static const std::regex definition(
      R"(^(?:template <.*> *)?(?:class|struct|union|enum(?: class| struct)?) )"
      R"((?:alignas\(\w+\) )?(\w+)(?: final)?(?: :.*|(?: \{.*)?)$)");
  std::istringstream stream(without_block_comments(text));
  std::vector<TypeDefinition> types;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, definition)) types.push_back({number, match[1]});
  }
  return types;
}

std::vector<CMakeTarget> read_cmake_targets(const std::string& text, const std::string& file) {
  static const std::regex comment("#[^\n]*");
  static const std::regex command(R"((\w+)\s*\(\s*([\w:.]+)([^)]*)\))");
  const std::string code = std::regex_replace(text, comment, "");
  std::vector<CMakeTarget> targets;
  for (auto match = std::sregex_iterator(code.begin(), code.end(), command);
       match != std::sregex_iterator(); ++match) {
    const std::string verb = (*match)[1], name = short_name((*match)[2]), rest = (*match)[3];
    const bool declares = verb == "heteroperf_add_library" || verb == "heteroperf_add_module" ||
                          verb == "add_library" || verb == "add_executable";
    if (declares && rest.find("ALIAS") == std::string::npos) {
      targets.push_back({name, file, own_targets_in(rest)});
    } else if (verb == "target_link_libraries") {
      const auto known = std::ranges::find(targets, name, &CMakeTarget::name);
      if (known != targets.end())
        std::ranges::copy(own_targets_in(rest), std::back_inserter(known->links));
    }
  }
  return targets;
}

SourceTree read_source_tree(const fs::path& root, const LayerTable& table) {
  SourceTree tree;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (!is_passed_over(entry.path(), table)) {
      tree.top_level.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(tree.top_level);
  for (const std::string& name : tree.top_level) {
    if (fs::is_directory(root / name)) read_folder(root, root / name, table, tree);
  }
  return tree;
}

}  // namespace heteroperf::architecture
