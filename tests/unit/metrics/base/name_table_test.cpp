#include "metrics/base/name_table.hpp"

#include <gtest/gtest.h>

#include <string>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

enum class Shade { light, dark };
struct Row {
  Shade value;
  const char* name;
  int percent;
};
constexpr Row shades[] = {{Shade::dark, "dark", 80}, {Shade::light, "light", 20}};

TEST(NameTable, ReadsBackWhatItNames) {
  EXPECT_STREQ(name_of(shades, Shade::light), "light");
  EXPECT_EQ(row_of(shades, Shade::dark).percent, 80);
  EXPECT_EQ(parse_name(shades, "shade", "dark"), Shade::dark);
  EXPECT_EQ(names_of(shades), (std::vector<std::string>{"dark", "light"}));
  EXPECT_EQ(values_of(shades).front(), Shade::dark);
}

TEST(NameTable, AWrongNameIsToldTheNearestAndAll) {
  try {
    parse_name(shades, "shade", "drak");
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "unknown shade 'drak' (one of dark, light). Did you mean 'dark'?");
  }
  EXPECT_THROW(parse_name(shades, "shade", ""), UserError);
  EXPECT_THROW(name_of(shades, static_cast<Shade>(7)), Error);
}

TEST(UnpredictableBits, Differ) { EXPECT_NE(unpredictable_bits(), unpredictable_bits()); }

}  // namespace
}  // namespace heteroperf
