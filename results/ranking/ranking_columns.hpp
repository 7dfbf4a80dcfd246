#pragma once

#include <span>
#include <string>

#include "results/ranking/ranking.hpp"

namespace heteroperf {

/// A column of every form of a ranking. Names and order are what other people's programs read: add
/// at the end, never rename.
struct RankColumn {
  const char* name;
  const char* unit;  ///< may be empty
  /// The raw value in the unit; empty where the entry has none.
  std::string (*value)(const RankList& list, const RankEntry& entry);
  bool number;
};
std::span<const RankColumn> rank_columns();

/// "image", or "image, errors known by 100 wrong answers".
std::string list_heading(const RankList& list);

/// "1.234 Top/s, regulated 1.5 Top/s (remark)".
std::string published_text(const PublishedScore& one);

/// The value in the run's record; empty where it has none.
std::string environment_leaf(const RunDigest& run, const std::string& path);

}  // namespace heteroperf
