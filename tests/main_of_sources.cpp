// main() of a program that several tests share: it runs the tests of the sources that it is told.
//
//   test_results ranking_test.cpp sweep_test.cpp      without any: all tests
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

/// Patterns for the tests that stand in `source`, each behind a colon; one for a suite that does so
/// as a whole.
std::string patterns_of(const std::string& source) {
  std::string patterns;
  const testing::UnitTest& program = *testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *program.GetTestSuite(i);
    std::string names;
    int count = 0;
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      if (std::filesystem::path(test.file()).filename() != source) continue;
      names += std::string(":") + suite.name() + "." + test.name();
      ++count;
    }
    const bool whole = count > 0 && count == suite.total_test_count();
    patterns += whole ? std::string(":") + suite.name() + ".*" : names;
  }
  return patterns;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string filter;
  for (int i = 1; i < argc; ++i) filter += patterns_of(argv[i]);
  if (argc > 1 && filter.empty()) {
    std::fprintf(stderr, "%s: no test stands in %s\n", argv[0], argv[1]);
    return 2;
  }
  if (!filter.empty()) testing::GTEST_FLAG(filter) = filter.substr(1);
  return RUN_ALL_TESTS();
}
