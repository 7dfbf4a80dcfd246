#include "metrics/base/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heteroperf {
namespace {

TEST(Problem, TextIsProblemWhySuggestion) {
  EXPECT_EQ((Problem{"x is 3", "limit 2", "Try 1."}).text(), "x is 3 (limit 2). Try 1.");
  EXPECT_EQ((Problem{"x is 3", "", "Try 1."}).text(), "x is 3. Try 1.");
  EXPECT_EQ((Problem{"x is 3", "limit 2", ""}).text(), "x is 3 (limit 2)");
  EXPECT_EQ((Problem{"x is 3", "", ""}).text(), "x is 3");
}

TEST(ProblemList, ThrowsEverythingAtOnceAndNothingWhenEmpty) {
  ProblemList problems;
  EXPECT_NO_THROW(problems.throw_if_any());
  problems.add("first", "a");
  problems.add("second", "", "b");
  try {
    problems.throw_if_any();
    FAIL() << "must throw";
  } catch (const UserError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    ASSERT_EQ(error.problems().size(), 2u);
    EXPECT_STREQ(error.what(), "first (a)\nsecond. b");
  }
}

TEST(CollectProblems, TakesTheUsersAndLetsOthersPass) {
  ProblemList problems;
  collect_problems(problems, [] { throw UserError({{"a", "b", "c"}, {"d", "", ""}}); });
  collect_problems(problems, [] {});
  ASSERT_EQ(problems.problems().size(), 2u);
  EXPECT_EQ(problems.problems()[0].text(), "a (b). c");
  EXPECT_THROW(collect_problems(problems, [] { throw SystemError("e"); }), SystemError);
}

TEST(SystemError, KeepsItsKind) {
  EXPECT_EQ(SystemError("p", "w").kind(), ErrorKind::run_failed);
  EXPECT_EQ(SystemError("p", "w", "s", ErrorKind::environment).kind(), ErrorKind::environment);
}

TEST(Expect, FailureIsInternalAndNamesThePlace) {
  try {
    HETEROPERF_EXPECT(1 + 1 == 3);
    FAIL() << "must throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(std::string(error.what()).find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp"), std::string::npos);
  }
}

TEST(NearestName, FindsTypingErrorsAndRefusesFarNames) {
  const std::vector<std::string> names{"generated", "idx", "cifar10", "text", "tokens"};
  EXPECT_EQ(nearest_name("tokns", names), "tokens");
  EXPECT_EQ(nearest_name("cifar100", names), "cifar10");
  EXPECT_EQ(nearest_name("generate", names), "generated");
  EXPECT_EQ(nearest_name("text", names), "text");
  EXPECT_EQ(nearest_name("completely-different-thing", {"ab"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name("a", {"out"}), "");
  EXPECT_EQ(nearest_name("a", {"b"}), "");
  EXPECT_EQ(nearest_name("sed", {"seed", "out"}), "seed");
  EXPECT_EQ(nearest_name("bf61", {"fp32", "bf16"}), "bf16");
  EXPECT_EQ(nearest_name("f8", {"u8", "u16"}), "");
  EXPECT_EQ(nearest_name("fp16", {"fp32", "bf16", "fp64"}), "");
  EXPECT_EQ(nearest_name("version", {"verify", "run"}), "");
}

TEST(UnexpectedFailure, SaysWhatIsKnownInOneLine) {
  const SystemError memory = unexpected_failure(std::bad_alloc());
  EXPECT_EQ(memory.kind(), ErrorKind::run_failed);
  EXPECT_NE(std::string(memory.what()).find("not enough memory"), std::string::npos);
  const SystemError other = unexpected_failure(std::runtime_error("its words\nframe #0: a place"));
  EXPECT_EQ(other.problems().front().why, "its words");
}

TEST(ErrorKind, NamesAreStable) {
  EXPECT_STREQ(to_string(ErrorKind::usage), "usage");
  EXPECT_STREQ(to_string(ErrorKind::run_failed), "run_failed");
  EXPECT_STREQ(to_string(ErrorKind::not_comparable), "not_comparable");
}

}  // namespace
}  // namespace heteroperf
