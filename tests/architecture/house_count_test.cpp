// The counting on small texts that a person can count at a glance.
#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/architecture/checks.hpp"
#include "tests/architecture/source_lines.hpp"

namespace heteroperf::architecture {
namespace {

double number_of(const FileTexts& texts, const std::string& key) {
  const HouseCount house = count_house(texts);
  const HouseNumber* number = house.find(key);
  return number == nullptr ? -1 : number->value;
}

double number_of(const std::string& text, const std::string& key) {
  return number_of(FileTexts{{"metrics/a.cpp", text}}, key);
}

void expect_lines(const std::string& text, int code, int comment, int blank) {
  EXPECT_EQ(number_of(text, "code_lines"), code) << text;
  EXPECT_EQ(number_of(text, "comment_lines"), comment) << text;
  EXPECT_EQ(number_of(text, "blank_lines"), blank) << text;
}

TEST(HouseLines, AreCodeCommentOrBlank) {
  expect_lines("int a;  // the first\n\n// A sentence.\n  \nint b;\n", 2, 1, 2);
  expect_lines("", 0, 0, 0);
  expect_lines("int a;", 1, 0, 0);
}

TEST(HouseLines, CommentMarksInLiteralsAreCode) {
  expect_lines("auto a = \"// no\";\nauto b = \"/*\";\nint c;\nauto d = \"*/\";\n", 4, 0, 0);
  expect_lines("auto a = \"\\\"// no\";  /* A\n comment. */\n", 1, 1, 0);
  expect_lines("char a = '\"';  // A quote.\n// Another line.\n", 1, 1, 0);
  expect_lines("int a = 1'000;  /* It's\n a number. */ int b = 0x1'f;\n", 2, 0, 0);
}

TEST(HouseLines, RawStringsAreCode) {
  expect_lines("auto a = R\"(\n// no\n\n\")\";\n// A comment.\n", 3, 1, 1);
  expect_lines("auto a = R\"x(\n)\" /* no\n)x\";\nint b;\n", 4, 0, 0);
}

TEST(HouseLines, BlockCommentsAreComment) {
  expect_lines("/* A comment\n\n * of \"three lines. */\nint a; /* and\n more */ int b;\n", 2, 2,
               1);
}

TEST(HouseLines, DisabledCodeLicencesAndRulersAreNoComment) {
  expect_lines("// int a = 3;\n// if (a) {\n// }\n// ----\n//\nint a;\n", 1, 0, 0);
  expect_lines("// It reads the file first;\n// then it writes.\nint a;\n", 1, 2, 0);
  expect_lines("// Copyright of nobody\n// at all\n\n// A comment.\nint a;\n", 1, 1, 1);
}

TEST(HouseLines, OfTestsAndScriptsAreCountedApart) {
  const FileTexts texts = {{"metrics/a.cu", "int a;\n"},
                           {"tests/b.cpp", "int b;\nint c;\n"},
                           {"tests/d.py", "d\n"},
                           {"scripts/e.sh", "e\nf\ng\n"}};
  EXPECT_EQ(number_of(texts, "files"), 1);
  EXPECT_EQ(number_of(texts, "code_lines"), 1);
  EXPECT_EQ(number_of(texts, "test_code_lines"), 2);
  EXPECT_EQ(number_of(texts, "script_lines"), 3);
}

void expect_functions(const std::string& text,
                      std::initializer_list<std::pair<int, int>> expected) {
  std::vector<std::pair<int, int>> functions;
  for (const auto& [first, last] : read_functions(read_source_lines(text))) {
    functions.emplace_back(first, last);
  }
  EXPECT_EQ(functions, (std::vector<std::pair<int, int>>(expected))) << text;
}

TEST(HouseFunctions, ReachFromTheirDeclarationToTheirBrace) {
  expect_functions("namespace a {\n\ntemplate <class T>\nint f(T x,\n      T y) {\n}\n}\n",
                   {{3, 6}});
  expect_functions("int f() { return 1; }\nint g();\nint h() {\n  {\n  }\n}\n", {{1, 1}, {3, 6}});
  expect_functions("void f() try {\n} catch (const A& a) {\n  g();\n}\n", {{1, 4}});
  expect_functions("#define F() {\nauto f() -> std::vector<int> {\n  char c = '}';\n}\n", {{2, 4}});
}

TEST(HouseFunctions, ContainTheirLambdasAndTypes) {
  expect_functions(
      "void f() {\n  struct A {\n    int g() { return 1; }\n  };\n  auto h = [] {\n  };\n}\n",
      {{1, 7}});
}

TEST(HouseFunctions, StandInClassesToo) {
  expect_functions(
      "class A final : public B<int> {\n public:\n  A() : a_{1}, b_(2) {\n  }\n"
      "  A& operator=(const A&) {\n  }\n  bool operator<(A) const { return a_ < 3; }\n"
      "  enum class Kind { x };\n  int a_{0};\n  std::function<void()> b_{};\n};\nvoid f() {}\n",
      {{3, 4}, {5, 6}, {7, 7}, {12, 12}});
}

TEST(HouseFunctions, ValuesAreNone) {
  expect_functions("const Row rows[] = {\n  {1, [](int a) {\n  }},\n};\nint a{f(3)};\n", {});
  expect_functions("template <class T>\nconcept C = requires(T t) { f(t); };\nextern \"C\" {\n}\n",
                   {});
  expect_functions("void f(A a = {}, B b = [] { return 1; }());\nvoid g(A a = {}) {\n}\n",
                   {{2, 3}});
}

TEST(HouseFragments, AreDocCommentsWithoutASubject) {
  const std::string text =
      "/// Of a stage.\nstruct A {\n  int a;  ///< What it is\n  int b;  ///< of b\n  // How?\n"
      "  int c;\n  /// Sums.\n  /// Of all.\n  void f() {\n    // What now\n  }\n"
      "  // Office.\n};\n";
  EXPECT_EQ(number_of(text, "doc_fragments"), 3);
  EXPECT_EQ(number_of(text, "member_fragments"), 1);
}

TEST(HouseIndices, AreIntsOfRunnersHeaders) {
  const std::string text =
      "int stage = 0, first_replica = 1, size;\nvoid f(int edge, int stages, int micro_batch);\n"
      "int zero_stage;  // int segment\nint rank_of_stage(int position_);\nlong segment;\n";
  EXPECT_EQ(number_of({{"runners/plan/a.hpp", text}}, "raw_indices"), 6);
  EXPECT_EQ(number_of({{"runners/plan/a.cpp", text}, {"suite/a.hpp", text}}, "raw_indices"), 0);
  EXPECT_EQ(number_of("auto a = static_cast<std::size_t>(b);  // static_cast<std::size_t>\n"
                      "f(\"static_cast<std::size_t>\", static_cast<int>(a));\n",
                      "size_casts"),
            1);
}

TEST(HouseChains, NameThreeStepsInAFile) {
  EXPECT_EQ(number_of("f(check_plan(p), cut_graph (p));\npredict(p);\n", "plan_chains"), 1);
  EXPECT_EQ(number_of("f(check_plan(p), cut_graph(p));\n// predict(p)\n", "plan_chains"), 0);
  EXPECT_EQ(number_of("predict(p);\npredict(q);\ncut_graph(p);\n", "plan_chains"), 0);
}

const HouseList& list_of(const HouseCount& house, const std::string& key) {
  for (const HouseList& list : house.lists) {
    if (list.key == key) return list;
  }
  throw std::runtime_error("no list " + key);
}

TEST(HouseFolders, CyclesCountParentsToo) {
  const HouseCount house =
      count_house({{"a/x.hpp", "#include \"a/b/y.hpp\"\n"},
                   {"a/b/y.hpp", "#include \"a/z.hpp\"\n"},
                   {"c/x.hpp", "#include \"d/x.hpp\"\n"},
                   {"d/x.hpp", "#include \"e/x.hpp\"\n"},
                   {"e/x.hpp", "#include \"c/x.hpp\"\n#include \"a/x.hpp\"\n"}});
  EXPECT_EQ(list_of(house, "mutual_folder_pairs").places, std::vector<std::string>{"a <-> a/b"});
  EXPECT_EQ(list_of(house, "folder_cycles").places,
            (std::vector<std::string>{"a, a/b", "c, d, e"}));
  EXPECT_EQ(house.find("folder_cycles")->value, 2);
}

TEST(HouseFolders, AreCountedWithoutTheirSubfolders) {
  FileTexts texts = {{"a/x.hpp", "// Some words.\nint a;\nint b;\n"}};
  for (int i = 0; i < 41; ++i) texts["a/b/" + std::to_string(i) + ".cpp"] = "";
  const HouseCount house = count_house(texts);
  EXPECT_EQ(house.folders.at("a").files, 1);
  EXPECT_EQ(house.folders.at("a").code_lines, 2);
  EXPECT_EQ(house.folders.at("a").comment_lines, 1);
  EXPECT_EQ(list_of(house, "large_folders").places, std::vector<std::string>{"a/b (41)"});
  EXPECT_EQ(house.find("largest_folder")->value, 41);
  EXPECT_EQ(house.find("small_files")->value, 42);
}

TEST(HouseHeaders, HaveOneUserBesideTheirOwnSource) {
  const HouseCount house =
      count_house({{"a/x.cpp", "#include \"a/x.hpp\"\n"},
                   {"a/y.cpp", "#include \"a/x.hpp\"\n#include \"a/z.hpp\"\n"},
                   {"a/v.cpp", "#include \"a/z.hpp\"\n#include \"made.hpp\"\n"},
                   {"a/x.hpp", ""},
                   {"a/z.hpp", ""},
                   {"a/w.hpp", ""},
                   {"a/w.cpp", "#include \"a/w.hpp\"\n"},
                   {"tests/t.cpp", "#include \"a/x.hpp\"\n"}});
  EXPECT_EQ(list_of(house, "headers_with_one_user").places,
            std::vector<std::string>{"a/x.hpp (a/y.cpp)"});
}

TEST(HouseQuantiles, AreSortedValues) {
  FileTexts texts;
  for (int lines = 1; lines <= 10; ++lines) {
    texts["a/" + std::to_string(lines) + ".cpp"] =
        std::string(static_cast<std::size_t>(lines), '\n');
  }
  EXPECT_EQ(number_of(texts, "file_median"), 6);
  EXPECT_EQ(number_of(texts, "file_p90"), 10);
  EXPECT_EQ(number_of(texts, "file_max"), 10);
  EXPECT_EQ(number_of(texts, "blank_lines"), 55);
}

TEST(HouseLimits, AreBrokenByWorseNumbersOnly) {
  const HouseCount house = count_house({{"a/x.cpp", "// Two words.\nint a;\nint b;\n"}});
  LayerTable table;
  table.limits = {{"code_lines", false, 2}, {"comment_share", true, .5}};
  EXPECT_EQ(check_limits(house, table), Violations{});
  table.limits = {{"code_lines", false, 1}, {"comment_share", true, .6}, {"rooms", false, 1}};
  EXPECT_EQ(
      check_limits(house, table),
      (Violations{"code_lines: code lines is 2 (the limit is at most 1)",
                  "comment_share: comment lines / code lines is 0.5 (the limit is at least 0.6)",
                  "layers.txt: [limits] names rooms, which is no number"}));
}

}  // namespace
}  // namespace heteroperf::architecture
