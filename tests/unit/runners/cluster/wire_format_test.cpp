#include "runners/cluster/link_curve.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

WireFormat parse(const std::string& name) {
  return parse_value_name<WireFormat>("wire format", name);
}

TEST(WireFormat, NamesAreReadBack) {
  for (WireFormat format : {WireFormat::fp32, WireFormat::bf16, WireFormat::int8}) {
    EXPECT_EQ(parse(to_string(format)), format);
  }
  EXPECT_STREQ(to_string(WireFormat::int8), "int8");
}

TEST(WireFormat, AWrongNameIsToldTheNearest) {
  try {
    parse("bf61");
    FAIL() << "was taken";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'bf16'"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(parse(""), UserError);
  EXPECT_THROW(parse("FP32"), UserError);
}

}  // namespace
}  // namespace heteroperf
