// The table of results/README.md that says of every field of a journal's lines how it is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/results/field_table.hpp"

namespace heteroperf {
namespace {

constexpr std::ptrdiff_t most_words = 25;

std::multiset<std::string> names_of(const std::vector<FieldRow>& rows) {
  std::multiset<std::string> names;
  for (const FieldRow& row : rows) names.insert(row.line + " " + row.field);
  return names;
}

TEST(JournalFields, TheTableHasEachOnceAndNoOther) {
  const auto named = names_of(fields_in_readme()), there = names_of(fields_of_events());
  ASSERT_GT(there.size(), 150u);
  EXPECT_EQ(named, there);
}

TEST(JournalFields, FewAreTheMachinesWord) {
  const auto rows = fields_in_readme();
  std::map<std::string, std::ptrdiff_t> counts;
  for (const FieldRow& row : rows) ++counts[row.held];
  EXPECT_EQ(counts["recomputed"] + counts["bounded"] + counts["word"],
            static_cast<std::ptrdiff_t>(rows.size()));
  EXPECT_GT(counts["recomputed"], 80);
  EXPECT_LE(counts["word"], most_words);
}

}  // namespace
}  // namespace heteroperf
