#include "results/text/text_escapes.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

TEST(TextEscapes, WellFormedTextStays) {
  for (const char* text : {"", "plain", "a\tb\nc", "ä ö ü", "日本", "𝄞"}) {
    EXPECT_EQ(utf8_text(text), text);
  }
}

TEST(TextEscapes, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(utf8_text("a\xff"
                      "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(utf8_text("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");                  // too long a form
  EXPECT_EQ(utf8_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  EXPECT_EQ(utf8_text("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");                  // cut off
  EXPECT_EQ(utf8_text(std::string("\0\x1b[1m", 5)), "\xef\xbf\xbd\xef\xbf\xbd[1m");
}

TEST(TextEscapes, AnyBytesBecomeValidJson) {
  RandomStream random(1);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(random.below(40), ' ');
    for (char& c : bytes) c = static_cast<char>(random.below(256));
    const std::string text = utf8_text(bytes);
    EXPECT_NO_THROW(nlohmann::json(text).dump());
    EXPECT_EQ(utf8_text(text), text);
    EXPECT_EQ(html_text(bytes).find_first_of("<>\"'"), std::string::npos);
    EXPECT_EQ(markdown_cell(bytes).find_first_of("<>\n"), std::string::npos);
  }
}

TEST(TextEscapes, CellsOfTables) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_cell("a\nb"), "\"a\nb\"");
  EXPECT_EQ(markdown_cell("a|b\n<c>"), "a\\|b &lt;c&gt;");
  EXPECT_EQ(markdown_cell("![x](http://y) `z` [t](u)"),
            "![x]&#40;http://y) &#96;z&#96; [t]&#40;u)");
  EXPECT_EQ(markdown_cell("[-0.9, +0.4] (same)"), "[-0.9, +0.4] (same)");
  EXPECT_EQ(csv_cell("=1+1"), "'=1+1");
  EXPECT_EQ(csv_cell("@SUM(a,b)"), "\"'@SUM(a,b)\"");
  EXPECT_EQ(csv_cell("-2e-3"), "-2e-3");
  EXPECT_EQ(csv_cell("-host"), "'-host");
  EXPECT_EQ(html_text("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
}

}  // namespace
}  // namespace heteroperf
