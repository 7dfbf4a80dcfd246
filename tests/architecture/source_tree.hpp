#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/layer_table.hpp"

namespace heteroperf::architecture {

struct Include {
  int line = 0;
  std::string header;
  bool quoted = false;  ///< "…" rather than <…>
};

/// A class, struct, union or enum that a header defines outside other types.
struct TypeDefinition {
  int line = 0;
  std::string name;
};

/// One target of a CMakeLists.txt and the heteroperf:: targets its declaration names.
struct CMakeTarget {
  std::string name, file;
  std::vector<std::string> links;
};

/// What the checks look at. All paths are relative to the repository's root, with '/'.
struct SourceTree {
  std::vector<std::string> top_level;                        ///< names beside CMakeLists.txt
  std::set<std::string> paths;                               ///< files and folders below the layers
  std::map<std::string, std::vector<Include>> files;         ///< C++ files: what they include
  std::map<std::string, std::vector<TypeDefinition>> types;  ///< of C++ headers
  std::vector<CMakeTarget> targets;
};

/// Reads the folders that the table names (scripts too, for names). Hidden files and what
/// `table.not_tracked` matches are passed over.
SourceTree read_source_tree(const std::filesystem::path& root, const LayerTable& table);

/// The whole of a file, empty where it cannot be read.
std::string read_text(const std::filesystem::path& file);

/// The #include lines of one file, comments and raw text aside.
std::vector<Include> read_includes(const std::string& text);

/// Types defined at the start of a line, as clang-format leaves them; specialisations aside.
std::vector<TypeDefinition> read_types(const std::string& text);

/// Targets declared with add_library, add_executable, heteroperf_add_library or
/// heteroperf_add_module, with what target_link_libraries adds to them in the same file.
std::vector<CMakeTarget> read_cmake_targets(const std::string& text, const std::string& file);

}  // namespace heteroperf::architecture
