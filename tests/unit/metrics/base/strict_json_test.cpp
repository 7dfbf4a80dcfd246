#include "metrics/base/strict_json.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace heteroperf {
namespace {

enum class Colour { red, green };
constexpr std::array<std::string_view, 2> value_names(Colour) { return {"red", "green"}; }

struct Sample {
  bool flag = false;
  double ratio = 0.5;
  int count = 1;
  std::int64_t large = 2;
  std::uint32_t unsigned32 = 3;
  std::uint64_t unsigned64 = 4;
  std::string name = "unset";
  Colour colour = Colour::red;
  std::array<std::int64_t, 2> pair{7, 8};
  std::vector<int> counts;
  std::vector<double> ratios;
  std::vector<std::string> names;
};

void read_sample(ObjectReader& reader, Sample& sample) {
  reader.read("flag", sample.flag);
  reader.read("ratio", sample.ratio);
  reader.read("count", sample.count, 0, 9);
  reader.read("large", sample.large);
  reader.read("unsigned32", sample.unsigned32);
  reader.read("unsigned64", sample.unsigned64);
  reader.read("name", sample.name);
  reader.read("colour", sample.colour);
  reader.read("pair", sample.pair);
  reader.read("counts", sample.counts, 0, 9);
  reader.read("ratios", sample.ratios);
  reader.read("names", sample.names);
  reader.finish();
}

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

std::string problems_of(const std::string& text,
                        const std::function<void(ObjectReader&)>& read_document) {
  return complaint([&] {
    const Json json = parse_strict_json(text, "f.json");
    DocumentProblems problems("f.json");
    ObjectReader reader(json, "", problems);
    read_document(reader);
    problems.throw_if_any();
  });
}

std::string problems_of(const std::string& text) {
  Sample sample;
  return problems_of(text, [&](ObjectReader& reader) { read_sample(reader, sample); });
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(StrictJson, ReadsEveryType) {
  Sample s;
  const std::string text =
      R"({"flag":true,"ratio":3,"count":9,"large":-9223372036854775808,"unsigned32":4294967295,"unsigned64":18446744073709551615,
    "name":"ü","colour":"green","pair":[1,-2],"counts":[0,9],"ratios":[1,0.25],"names":["a","b"]})";
  EXPECT_EQ(problems_of(text, [&](ObjectReader& reader) { read_sample(reader, s); }), "");
  EXPECT_TRUE(s.flag);
  EXPECT_EQ(s.ratio, 3);
  EXPECT_EQ(s.count, 9);
  EXPECT_EQ(s.large, INT64_MIN);
  EXPECT_EQ(s.unsigned32, UINT32_MAX);
  EXPECT_EQ(s.unsigned64, UINT64_MAX);
  EXPECT_EQ(s.name, "ü");
  EXPECT_EQ(s.colour, Colour::green);
  EXPECT_EQ(s.pair, (std::array<std::int64_t, 2>{1, -2}));
  EXPECT_EQ(s.counts, (std::vector<int>{0, 9}));
  EXPECT_EQ(s.ratios, (std::vector<double>{1, 0.25}));
  EXPECT_EQ(s.names, (std::vector<std::string>{"a", "b"}));
}

TEST(StrictJson, WhatIsAbsentOrWrongKeepsItsValue) {
  Sample s;
  const std::string text = R"({"flag":1,"ratio":"1","count":10,"name":null,"colour":"blue"})";
  EXPECT_NE(problems_of(text, [&](ObjectReader& reader) { read_sample(reader, s); }), "");
  EXPECT_FALSE(s.flag);
  EXPECT_EQ(s.ratio, 0.5);
  EXPECT_EQ(s.count, 1);
  EXPECT_EQ(s.large, 2);
  EXPECT_EQ(s.name, "unset");
  EXPECT_EQ(s.colour, Colour::red);
}

TEST(StrictJson, EveryWrongValueIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"flag":1})", "flag is 1 (must be true or false)"},
      {R"({"ratio":"1"})", R"(ratio is "1" (must be a number))"},
      {R"({"count":10})", "count is 10 (must be a whole number from 0 to 9)"},
      {R"({"count":-1})", "count is -1 (must be a whole number from 0 to 9)"},
      {R"({"count":1.0})", "count is 1.0 (must be a whole number from 0 to 9)"},
      {R"({"count":18446744073709551615})", "count is 18446744073709551615"},
      {R"({"large":9223372036854775808})", "(must be a whole number below 2^63)"},
      {R"({"large":true})", "large is true (must be a whole number)"},
      {R"({"unsigned32":4294967296})", "unsigned32 is 4294967296 (must be a whole number from 0"},
      {R"({"unsigned32":-1})", "unsigned32 is -1"},
      {R"({"unsigned64":-1})", "unsigned64 is -1 (must be a whole number, 0 or more)"},
      {R"({"unsigned64":0.5})", "unsigned64 is 0.5"},
      {R"({"name":{"a":1}})", "name is an object of 1 (must be a text)"},
      {R"({"colour":"gren"})", R"(is "gren" (must be one of red, green). Did you mean "green"?)"},
      {R"({"colour":1})", "colour is 1 (must be one of red, green)"},
      {R"({"colour":""})", R"(colour is "")"},
      {R"({"pair":[1]})", "pair is [1] (must be two whole numbers)"},
      {R"({"pair":[1,2,3]})", "pair is [1,2,3] (must be two whole numbers)"},
      {R"({"pair":[1,null]})", "pair[1] is null (must be a whole number)"},
      {R"({"counts":7})", "counts is 7 (must be a list)"},
      {R"({"counts":[1,10]})", "counts[1] is 10 (must be a whole number from 0 to 9)"},
      {R"({"ratios":[[]]})", "ratios[0] is a list of 0 (must be a number)"},
      {R"({"names":["a",2]})", "names[1] is 2 (must be a text)"},
      {R"({"colou":1})", R"(unknown key "colou". Did you mean "colour"?)"},
      {R"({"nothing like any":1})", "(valid keys: flag, ratio, count, large, unsigned32,"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_SAYS(problems_of(text), expected);
    EXPECT_TRUE(problems_of(text).starts_with("f.json: ")) << text;
  }
}

TEST(StrictJson, AllProblemsComeAtOnceWithTheirPaths) {
  const std::string text =
      R"({"inner":[{"count":0},{"count":10,"cont":1}],"list":{},"other":[],"nested":{"count":[],"b":1}})";
  const std::string said = problems_of(text, [](ObjectReader& reader) {
    reader.require({"inner", "missing"});
    reader.for_each("inner", [&](const Json& json, const std::string& path) {
      ObjectReader element(json, path, reader.problems());
      int count = 0;
      element.require({"name"});
      element.read("count", count, 0, 9);
      element.finish();
    });
    EXPECT_EQ(reader.list("list"), nullptr);
    const auto read_count = [](ObjectReader& object) {
      int count = 0;
      object.read("count", count, 0, 9);
    };
    reader.read_object("other", read_count);
    reader.read_object("nested", read_count);
    reader.read_object("absent", read_count);
    reader.finish();
  });
  EXPECT_SAYS(said, "the key missing is missing");
  EXPECT_SAYS(said, "the key inner[0].name is missing");
  EXPECT_SAYS(said, "inner[1].count is 10");
  EXPECT_SAYS(said, R"(unknown key "cont" in inner[1]. Did you mean "count"?)");
  EXPECT_SAYS(said, "nested.count is a list of 0");
  EXPECT_SAYS(said, R"(unknown key "b" in nested)");
  EXPECT_SAYS(said, "list is an object of 0 (must be a list)");
  EXPECT_SAYS(said, "other is a list of 0 (must be an object)");
}

TEST(StrictJson, WhatIsNoObjectIsNamedOnce) {
  EXPECT_EQ(problems_of("[1]"), "f.json: the document is [1] (must be an object)");
  EXPECT_EQ(problems_of("7", [](ObjectReader& reader) { reader.require({"a"}); }),
            "f.json: the document is 7 (must be an object)");
}

TEST(StrictJson, FormatAndVersionMustFit) {
  const auto check = [](const std::string& text) {
    return problems_of(text, [](ObjectReader& reader) {
      reader.expect_format("heteroperf-plan", 3, FormatKey::optional);
    });
  };
  EXPECT_EQ(check("{}"), "");
  EXPECT_EQ(check(R"({"_format":"heteroperf-plan","_version":3})"), "");
  EXPECT_EQ(check(R"({"_format":"theirs"})"),
            "f.json is not a plan (its _format is \"theirs\", not \"heteroperf-plan\"). "
            "`heteroperf plan -o FILE` writes one, and the folder of a run of a fixed model has "
            "one.");
  EXPECT_SAYS(check(R"({"_format":"heteroperf-cluster"})"),
              R"(f.json is a cluster, a plan is wanted (its _format is "heteroperf-cluster"))");
  EXPECT_SAYS(check(R"({"_version":4})"), "version 4, this program knows version 3");
  EXPECT_SAYS(check(R"({"_version":"3"})"), R"(its _version must be 3, not "3")");
  EXPECT_SAYS(check(R"({"_format":null})"), R"(its _format is "null")");
}

TEST(StrictJson, WhatMustSayItsFormatIsRefusedWithoutInOneLine) {
  const auto check = [](const std::string& text) {
    return problems_of(text, [](ObjectReader& reader) {
      reader.expect_format("heteroperf-plan", 1);
      reader.require({"stages"});
    });
  };
  EXPECT_SAYS(check("{}"), R"(f.json is not a plan (it has no _format "heteroperf-plan"))");
  EXPECT_SAYS(check(R"({"_format":"heteroperf-plan"})"), "f.json does not say its version");
}

TEST(StrictJson, CutOffDocumentsOfAnotherKindAreNamed) {
  const auto check = [](const char* text) {
    return complaint([&] { parse_strict_json(text, "f.json", "heteroperf-plan"); });
  };
  EXPECT_SAYS(check(R"({"_format" : "heteroperf-cluster", "cl)"), "is a cluster, a plan is wanted");
  EXPECT_SAYS(check(R"({"_format":"heteroperf-plan", "st)"), "is not valid JSON");
  EXPECT_SAYS(check(""), "f.json is empty");
}

TEST(StrictJson, RefusesWhatIsNoJson) {
  for (const char* text : {"{", "{]", "\xff\xfe", R"({"a":1e999})", "{} {}", R"({"a":NaN})"}) {
    EXPECT_TRUE(problems_of(text).starts_with("f.json is not valid JSON (")) << text;
  }
  EXPECT_SAYS(problems_of("{\n\"a\" 1}"), "line 2");
}

TEST(StrictJson, RefusesRepeatedKeys) {
  EXPECT_SAYS(problems_of(R"({"count":1,"count":2})"),
              R"(the key "count" is there twice in one object)");
  const auto in_lists = [](const char* text) {
    return complaint([&] { parse_strict_json(text, "f.json"); });
  };
  EXPECT_SAYS(in_lists(R"([{"a":1},{"b":{"a":1,"a":2}}])"), R"(the key "a" is there twice)");
  EXPECT_EQ(in_lists(R"([{"a":1},{"a":{"a":1}},{"a":[{"a":2}]}])"), "");
}

TEST(StrictJson, RefusesDepthAndWidth) {
  EXPECT_SAYS(problems_of(std::string(1'000'000, '[')), "its lists nest more than 16 levels");
  EXPECT_EQ(
      complaint([] { parse_strict_json(std::string(16, '[') + std::string(16, ']'), "f.json"); }),
      "");
  std::string wide = "{";
  for (int i = 0; i < 300; ++i) wide += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_SAYS(problems_of(wide + "\"last\":0}"), "more than 256 keys");
}

TEST(StrictJson, RunFilesHaveAsManyKeysAsAnEnvironmentHas) {
  const auto with_keys = [](int count) {
    std::string text = "{";
    for (int i = 1; i < count; ++i) text += "\"k" + std::to_string(i) + "\":0,";
    return complaint(
        [&] { parse_strict_json(text + "\"last\":0}", "f.json", {}, run_file_limits); });
  };
  EXPECT_EQ(with_keys(1024), "");
  EXPECT_SAYS(with_keys(1025), "more than 1024 keys");
}

TEST(StrictJson, RefusesObjectsWhoseGrowthCopiesLongListsAgainAndAgain) {
  const auto nested = [](int levels, int keys_behind) {
    std::string text = "[0";
    for (int i = 0; i < 10'000; ++i) text += ",0";
    text += "]";
    for (int level = 0; level < levels; ++level) {
      text = "{\"first\":" + text;
      for (int i = 0; i < keys_behind; ++i) text += ",\"k" + std::to_string(i) + "\":0";
      text += "}";
    }
    return complaint([&] { parse_strict_json(text, "f.json", {}, run_file_limits); });
  };
  EXPECT_EQ(nested(60, 0), "");
  EXPECT_EQ(nested(1, 100), "");
  EXPECT_EQ(nested(5, 1), "");
  EXPECT_SAYS(nested(60, 16), "too many keys follow long lists in nested objects");
}

TEST(StrictJson, LongListsOfObjectsAreLinear) {
  std::string text = "[";
  for (int i = 0; i < 300'000; ++i) text += R"({"a":1},)";
  text += "{}]";
  EXPECT_EQ(parse_strict_json(text, "f.json").size(), 300'001u);
}

TEST(StrictJson, MessagesStayShortAndPrintable) {
  EXPECT_EQ(shown("a\n\x1b[1m\x7fü"), R"("a\n\u001b[1m\u007f\u00fc")");
  EXPECT_EQ(shown(std::string("\xff")), R"("\ufffd")");
  EXPECT_EQ(shown(std::string(100, 'x')), "\"" + std::string(60, 'x') + "...\"");
  EXPECT_EQ(shown(std::string(59, 'x') + "€"), "\"" + std::string(59, 'x') + "...\"");
  EXPECT_EQ(shown(Json::array({1, true, nullptr})), "[1,true,null]");
  EXPECT_EQ(shown(std::vector<int>(9)), "a list of 9");
  EXPECT_EQ(shown(Json::array({"text"})), "a list of 1");
  EXPECT_LT(problems_of("[\"" + std::string(1'000'000, 'x')).size(), 300u);
  std::string many = R"({"counts":[)";
  for (int i = 0; i < 10'000; ++i) many += "-1,";
  const std::string said = problems_of(many + "0]}");
  EXPECT_LT(said.size(), 2000u);
  EXPECT_SAYS(said, "f.json: more problems follow");
}

TEST(StrictJson, SuggestsNearNamesOnly) {
  EXPECT_EQ(did_you_mean("stide", {"kernel", "stride"}), R"(Did you mean "stride"?)");
  EXPECT_EQ(did_you_mean("stide", {"completely_different"}), "");
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'a'), {"a"}), "");
}

}  // namespace
}  // namespace heteroperf
