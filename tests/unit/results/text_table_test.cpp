#include "results/text/text_table.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  TextTable table({{"name", CellSide::left}, {"n"}, {"", CellSide::left}, {"µ", CellSide::left}});
  table.add({"long name", "7", "", "µµ"});
  table.add({"b", "1234", "", ""});
  EXPECT_EQ(table.text(" "),
            " name          n  µ\n"
            " long name     7  µµ\n"
            " b          1234\n");
  EXPECT_EQ(table.markdown(),
            "| name | n | µ |\n"
            "|---|--:|---|\n"
            "| long name | 7 | µµ |\n"
            "| b | 1234 |  |\n");
}

TEST(TextTable, ACellStaysOneLineOfWellFormedText) {
  TextTable table({{"x", CellSide::left}});
  table.add({"a\nb\x1b\xff"});
  EXPECT_EQ(table.text(), "x\na b\xef\xbf\xbd\xef\xbf\xbd\n");
}

}  // namespace
}  // namespace heteroperf
