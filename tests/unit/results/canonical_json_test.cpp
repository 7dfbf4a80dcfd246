#include "results/text/canonical_json.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "results/text/sha256.hpp"

namespace heteroperf {
namespace {

TEST(JsonNumber, AlwaysLooksLikeARealNumber) {
  EXPECT_EQ(json_number(1), "1.0");
  EXPECT_EQ(json_number(-0.0), "-0.0");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(9007199254740992.0), "9.007199254740992e+15");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_THROW(json_number(std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(json_number(std::numeric_limits<double>::infinity()), Error);
}

TEST(JsonNumber, ReadsBackAsTheSameBits) {
  RandomStream random(7);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random.bits());
    if (!std::isfinite(value)) continue;
    const std::string text = json_number(value);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(std::strtod(text.c_str(), nullptr)),
              std::bit_cast<std::uint64_t>(value))
        << text;
    ASSERT_EQ(json_compact(text, "number"), text);
  }
}

TEST(JsonInteger, BecomesTextBeyond2To53) {
  EXPECT_EQ(json_integer(std::int64_t{-5}), "-5");
  EXPECT_EQ(json_integer(std::uint64_t{9007199254740992u}), "9007199254740992");
  EXPECT_EQ(json_integer(std::uint64_t{9007199254740993u}), "\"9007199254740993\"");
  EXPECT_EQ(json_integer(std::int64_t{-9007199254740993}), "\"-9007199254740993\"");
}

TEST(JsonQuoted, EscapesAndReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(json_quoted("a b"), "\"a b\"");
  EXPECT_EQ(json_quoted("a\"\\\n\x01"), "\"a\\\"\\\\\\n\\u0001\"");
  EXPECT_EQ(json_quoted("π"), "\"π\"");
  EXPECT_EQ(json_quoted("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(JsonCompact, IsAFixPointAndKeepsTheOrderOfKeys) {
  const std::string text =
      json_compact(R"( { "b" : [ 1 , 2.50, true, null ], "a" : {} } )", "test");
  EXPECT_EQ(text, R"({"b":[1,2.5,true,null],"a":{}})");
  EXPECT_EQ(json_compact(text, "test"), text);
  EXPECT_EQ(json_compact(json_indented(text, "test"), "test"), text);
}

TEST(JsonCompact, NamesTheDocumentThatIsMalformed) {
  for (const char* bad : {"", "{", "{\"a\":}", "[1e999]", "nan", "{\"a\":1}x"}) {
    try {
      json_compact(bad, "the plan");
      FAIL() << bad;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("the plan"), std::string::npos);
    }
  }
}

TEST(Sha256, MatchesThePublishedExamples) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 hash;
  hash.update("a").update("bc");
  EXPECT_EQ(hash.finish(), sha256_hex("abc"));
  EXPECT_EQ(hash.finish(), sha256_hex(""));
}

TEST(Sha256, NamesAFileThatCannotBeRead) {
  try {
    sha256_file_hex("/nonexistent/file");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/file"), std::string::npos);
  }
}

}  // namespace
}  // namespace heteroperf
