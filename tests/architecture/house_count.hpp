#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/architecture/source_tree.hpp"

namespace heteroperf::architecture {

/// The text of each counted file by its path from the repository's root: C++ files, and what lies
/// below scripts/.
using FileTexts = std::map<std::string, std::string>;

FileTexts read_file_texts(const std::filesystem::path& root, const SourceTree& tree);

/// One number of the house; the key is its name in JSON and in the limits of layers.txt.
struct HouseNumber {
  std::string key, label;
  double value = 0;
};

/// The places behind a number, in the order of their names.
struct HouseList {
  std::string key, label;
  std::vector<std::string> places;
};

/// A folder's files without those of its sub-folders.
struct FolderCount {
  int files = 0, code_lines = 0, comment_lines = 0;
};

struct HouseCount {
  std::vector<HouseNumber> numbers;
  std::vector<HouseList> lists;
  std::map<std::string, FolderCount> folders;

  /// Null when no number has the key.
  const HouseNumber* find(const std::string& key) const;
};

/// Counts by the rules that stand at the top of house_table.cpp.
HouseCount count_house(const FileTexts& texts);

}  // namespace heteroperf::architecture
