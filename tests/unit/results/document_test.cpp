#include "results/text/document.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

Table numbers() {
  Table table{"rows", "", {{"name", "name", Unit::none}, {"size.time_s", "time", Unit::seconds}}};
  table.add({"long name", 0.0125});
  table.add({"µ", {}});
  return table;
}

Document sample() {
  Document document{"heteroperf-list"};
  document.field("verdict", "verdict", Unit::none, Datum("pass").judged(Tone::good));
  document.field("speed.ops_per_second", "speed", Unit::operations_per_second, 412.34e9, "2 runs");
  document.field("lost", "lost", Unit::seconds, std::optional<double>());
  document.data("ci95", "interval of the speed", Unit::operations_per_second, Interval{1, 2});
  document.table(numbers());
  document.field("", "for people", Unit::none, "alone");
  document.line("a sentence");
  return document;
}

TEST(Document, TextIsAlignedAndWritesNumbersAsPeopleDo) {
  EXPECT_EQ(console_text(sample()),
            "verdict  pass\n"
            "speed    412.3 Gop/s (2 runs)\n"
            "name          time\n"
            "long name  12.5 ms\n"
            "µ                -\n"
            "for people  alone\n"
            "a sentence\n");
}

TEST(Document, JsonHasKeysAtTheirPathsInFullAndNoneThatAreAbsent) {
  EXPECT_EQ(json_text(sample()), R"({
  "_format": "heteroperf-list",
  "_version": 1,
  "verdict": "pass",
  "speed": {
    "ops_per_second": 4.1234e+11
  },
  "ci95": [
    1.0,
    2.0
  ],
  "rows": [
    {
      "name": "long name",
      "size": {
        "time_s": 0.0125
      }
    },
    {
      "name": "µ"
    }
  ]
}
)");
}

TEST(Document, MarkdownHasTheSameParts) {
  EXPECT_EQ(markdown_text(sample()),
            "| | |\n|---|---|\n| verdict | pass |\n| speed | 412.3 Gop/s (2 runs) |\n\n"
            "| name | time |\n|---|--:|\n| long name | 12.5 ms |\n| µ | - |\n\n"
            "| | |\n|---|---|\n| for people | alone |\n\n"
            "a sentence\n");
}

TEST(Document, CsvHasRawValuesAndHtmlHasThemAsTitles) {
  EXPECT_EQ(csv_text(numbers()), "name,size.time_s\nlong name,0.0125\nµ,\n");
  EXPECT_NE(html_table(numbers()).find("<td class=\"n\" title=\"0.0125\">12.5 ms</td>"),
            std::string::npos);
}

TEST(Document, ARowOfEachElementHasTheValuesOfItsColumns) {
  using Entry = std::pair<std::string, int>;
  const std::vector<Entry> entries{{"a", 1}, {"b", 2}};
  const Table table = table_of(
      "entries", entries,
      {{{"name", "name", Unit::none}, &Entry::first},
       {{"twice", "twice", Unit::count}, [](const Entry& entry) { return 2 * entry.second; }}});
  EXPECT_EQ(csv_text(table), "name,twice\na,2\nb,4\n");
}

TEST(Document, AKeyWithoutLabelOrUnitIsRefused) {
  EXPECT_EQ(unstated_keys(sample()), std::vector<std::string>());
  Document document = sample();
  document.field("unlabelled", "", Unit::none, 1);
  document.data("unitless", "a number", Unit::unstated, 1);
  document.data("time_s", "a time", Unit::none, 1);
  document.field("verdict", "verdict", Unit::none, "again");
  Table table{"table", "", {{"a", "", Unit::none}, {"", "", Unit::none, Audience::people}}};
  document.table(table);
  EXPECT_EQ(unstated_keys(document),
            (std::vector<std::string>{"unlabelled", "unitless", "time_s", "verdict", "table[].a"}));
}

TEST(Document, LinesFitTheTerminal) {
  Document document{"heteroperf-list"};
  document.field("note", "note", Unit::none, "one two three four five six");
  EXPECT_EQ(console_text(document, {Colour::off, 20}),
            "note  one two three\n      four five six\n");
  Table table{"", "", {{"", "path", Unit::none}, {"", "n", Unit::none}}};
  table.add({"a path that is long", 7});
  EXPECT_EQ(console_text(table, {Colour::off, 18}), "path             n\na path that is…  7\n");
}

TEST(Document, ColourShowsTheToneAndMovesNoColumn) {
  Table table{"", "", {{"", "a", Unit::none}, {"", "b", Unit::none}}};
  table.add({Datum("x").judged(Tone::bad), "y"});
  EXPECT_EQ(console_text(table, {Colour::on}), "\x1b[1ma  b\x1b[0m\n\x1b[31mx\x1b[0m  y\n");
}

TEST(Document, TextsOfStrangersAreMadeSafe) {
  Document document{"heteroperf-list"};
  document.field("name", "name", Unit::none, "a\nb\x1b\xff");
  EXPECT_EQ(console_text(document), "name  a b\xef\xbf\xbd\xef\xbf\xbd\n");
  Table table{"", "", {{"x", "x", Unit::none}}};
  table.add({"=1+<b>"});
  EXPECT_EQ(csv_text(table), "x\n'=1+<b>\n");
  EXPECT_NE(html_table(table).find("=1+&lt;b&gt;"), std::string::npos);
}

TEST(Document, EveryUnitHasItsWay) {
  EXPECT_EQ(value_text(23.194, Unit::seconds), "23.19 s");
  EXPECT_EQ(value_text(5400, Unit::seconds), "90 min");
  EXPECT_EQ(value_text(1288490188, Unit::bytes), "1.2 GiB");
  EXPECT_EQ(value_text("123456789012345678901", Unit::operations), "123.5 Eop");
  EXPECT_EQ(value_text(0.751, Unit::fraction), "75.1 %");
  EXPECT_EQ(value_text(0.94, Unit::change), "-6.0 %");
  EXPECT_EQ(value_text(3.1e9, Unit::bytes_per_second), "3.1 GB/s");
  EXPECT_EQ(value_text(std::nan(""), Unit::ratio), "");
  EXPECT_EQ(value_text(Interval{1, 2}, Unit::seconds), "1 s, 2 s");
}

}  // namespace
}  // namespace heteroperf
