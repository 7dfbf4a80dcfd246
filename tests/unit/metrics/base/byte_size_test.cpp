#include "metrics/base/quantity.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

TEST(ByteSize, ReadsBinaryMultiples) {
  EXPECT_EQ(parse_byte_size("0"), Bytes(0));
  EXPECT_EQ(parse_byte_size("8"), Bytes(8));
  EXPECT_EQ(parse_byte_size("64K"), Bytes(65536));
  EXPECT_EQ(parse_byte_size("64k"), Bytes(65536));
  EXPECT_EQ(parse_byte_size("2MiB"), Bytes(2097152));
  EXPECT_EQ(parse_byte_size("1GB"), Bytes(1073741824));
  EXPECT_EQ(parse_byte_size("12B"), Bytes(12));
}

TEST(ByteSize, RefusesWhatIsNone) {
  for (const char* text : {"", "K", "-8", "8 K", "8X", "1.5M", "8KK", "99999999999999999999",
                           "18446744073709551615K"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(ByteSize, TextIsExactAndComesBack) {
  EXPECT_EQ(byte_size_text(Bytes(0)), "0");
  EXPECT_EQ(byte_size_text(Bytes(1000)), "1000");
  EXPECT_EQ(byte_size_text(Bytes(65536)), "64K");
  for (const std::uint64_t size : {1ULL, 1023ULL, 1024ULL, 1536ULL, 1ULL << 40, ~0ULL}) {
    EXPECT_EQ(parse_byte_size(byte_size_text(Bytes(size))), Bytes(size));
  }
}

TEST(ByteSize, RoundedForPeople) {
  EXPECT_EQ(rounded_byte_size(0.0), "0 B");
  EXPECT_EQ(rounded_byte_size(Bytes(1023)), "1023 B");
  EXPECT_EQ(rounded_byte_size(200000.0), "195.3 KiB");
  EXPECT_EQ(rounded_byte_size(Bytes(85899345920)), "80 GiB");
  EXPECT_EQ(rounded_byte_size(0x1p60), "1.049e+06 TiB");
}

}  // namespace
}  // namespace heteroperf
