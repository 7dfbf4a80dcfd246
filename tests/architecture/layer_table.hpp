#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heteroperf::architecture {

/// One folder of the house and the folders it may include.
struct Layer {
  std::string folder;
  int level = 0;
  std::vector<std::string> may_include;
};

/// A third-party header, or all below a folder when it ends in '/', and who may include it.
struct HeaderRule {
  std::string header;
  std::vector<std::string> allowed, excluded;  ///< patterns
};

/// A bound of one number of the house, by the number's key.
struct HouseLimit {
  std::string key;
  bool at_least = false;  ///< the number must not fall below the bound, rather than not exceed it
  double bound = 0;
};

/// The contents of layers.txt.
struct LayerTable {
  std::vector<Layer> layers;
  std::vector<HeaderRule> third_party;
  std::vector<HouseLimit> limits;
  std::vector<std::string> sealed, system, forbidden_names, top_level, not_tracked;

  /// The row of a file or folder, by its longest folder; null when none owns it.
  const Layer* layer_of(std::string_view path) const;
  const HeaderRule* rule_of(std::string_view header) const;
  bool is_system(std::string_view header) const;
  bool is_sealed(std::string_view header) const;
};

/// Throws std::runtime_error with file and line for a row it cannot read, and for a table that
/// is not layered: an unknown folder, or an edge that does not go down.
LayerTable read_layer_table(const std::filesystem::path& file);

/// `header` is `rule` itself, or lies below it when it ends in '/'.
bool names_header(std::string_view rule, std::string_view header);

/// '*' stands for any text without '/', "**" for any text.
bool matches(std::string_view pattern, std::string_view path);
bool matches_any(const std::vector<std::string>& patterns, std::string_view path);

}  // namespace heteroperf::architecture
