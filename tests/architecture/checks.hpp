#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/architecture/house_count.hpp"
#include "tests/architecture/layer_table.hpp"
#include "tests/architecture/source_tree.hpp"

namespace heteroperf::architecture {

/// One broken rule: "path:line: what (why)", ready to be read and clicked.
using Violations = std::vector<std::string>;

/// An include of our own goes to a folder its row allows, written from the root.
Violations check_layers(const SourceTree& tree, const LayerTable& table);
/// A third-party header stands in its row, and every other header is known.
Violations check_third_party(const SourceTree& tree, const LayerTable& table);
/// No file reaches a sealed header through headers of our own, outside that header's row.
Violations check_sealed(const SourceTree& tree, const LayerTable& table);
/// No two folders include each other, directly or in a ring. A folder and its own sub-folders
/// may: a factory includes what it makes.
Violations check_cycles(const SourceTree& tree);
Violations check_names(const SourceTree& tree, const LayerTable& table);
/// A type's name has one definition among the program's headers, and no header of a test defines
/// it again: two such headers in one file would not compile, in two files not agree.
Violations check_type_names(const SourceTree& tree);
Violations check_top_level(const SourceTree& tree, const LayerTable& table);
/// Every row with C++ files has a target of its own, and targets link as the rows include.
Violations check_targets(const SourceTree& tree, const LayerTable& table);
/// A source includes the header of its name before any other: compiled by itself it proves that
/// the header stands alone.
Violations check_own_header(const SourceTree& tree);

/// No number of the house is worse than its limit, and every limit names a number.
Violations check_limits(const HouseCount& house, const LayerTable& table);

/// Every source file that a page names in backquotes is there. In the chapters of CONTRIBUTING.md
/// that lead through the code, "Your first hour" and "Glossary", so is every function `name()` and
/// every type `Name`, declared in the file that is named last before it.
Violations check_pages(const std::filesystem::path& root, const SourceTree& tree);

/// All of the above but limits and pages, which hold for this repository alone.
Violations check_all(const SourceTree& tree, const LayerTable& table);

}  // namespace heteroperf::architecture
