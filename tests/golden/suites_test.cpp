// Suites whose workloads were left out, repeated, exchanged or moved, and runs of which half is
// missing: what each verb says of them.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "results/record/suite_record.hpp"
#include "tests/golden/result_verbs.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class SuiteVerbs : public ResultVerbs {
 protected:
  void SetUp() override { store_suite(folder(), suite_); }

  fs::path folder() const { return folder_ / "s"; }

  /// The records that rank excludes, a line each.
  std::string excluded(const std::string& path) const {
    std::string lines;
    const Json ranking = Json::parse(verb({"rank", path, "--json"}).out);
    for (const Json& one : ranking.at("excluded")) {
      lines += one.at("record").get<std::string>() + ": " + one.at("reasons").dump() + '\n';
    }
    return lines;
  }

  /// One line on stderr that has these words, and this exit code.
  void expect_line(const Words& words, int exit_code, const std::string& said) const {
    const CommandResult result = verb(words);
    EXPECT_EQ(result.exit_code, exit_code) << words.front() << "\n" << result.out << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << words.front() << "\n"
                                                                         << result.err;
    EXPECT_NE(result.err.find(said), std::string::npos) << words.front() << "\n" << result.err;
  }

  const SuitePlan suite_ = whole_suite();
};

/// The workloads of store_suite() are each faster than the one before it.
struct Forgery {
  const char* name;
  void (*forge)(const fs::path& folder, SuitePlan suite);
  const char* said;  ///< by every verb
};

void copy_run(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

/// Each of them ends, where it can, with the suite.json that this program itself would write.
const Forgery forgeries[] = {
    {"TheSlowestIsLeftOut",
     [](const fs::path& folder, SuitePlan suite) {
       suite.workloads.erase(suite.workloads.begin());
       write_suite_record(folder, suite);
     },
     "workloads image automl-image llm of"},
    {"TheFastestIsNamedTwice",
     [](const fs::path& folder, SuitePlan suite) {
       suite.workloads.front() = suite.workloads.back();
       write_suite_record(folder, suite);
     },
     "llm twice"},
    {"TheFastestIsThereTwice",
     [](const fs::path& folder, SuitePlan suite) {
       copy_run(folder / "llm", folder / "image");
       write_suite_record(folder, suite);
     },
     "that of llm"},
    {"ARunOfAnotherSuite",
     [](const fs::path& folder, SuitePlan suite) {
       store_suite(folder.parent_path() / "other", whole_suite("other"));
       copy_run(folder.parent_path() / "other/image", folder / "image");
       write_suite_record(folder, suite);
     },
     "one of other"},
    {"ARunOfItsOwn",
     [](const fs::path& folder, SuitePlan suite) {
       fixed_run().write_finished({folder / "image"});
       write_suite_record(folder, suite);
     },
     "names no suite"},
    {"AFolderRenamed",
     [](const fs::path& folder, SuitePlan) { fs::rename(folder / "image", folder / "picture"); },
     "a run in image, which comes before automl-image"},
    {"AFolderRenamedInTheListToo",
     [](const fs::path& folder, SuitePlan suite) {
       fs::rename(folder / "image", folder / "picture");
       suite.workloads.front() = "picture";
       write_suite_record(folder, suite);
     },
     "as the journal in picture says"},
    {"AFolderRemoved", [](const fs::path& folder, SuitePlan) { fs::remove_all(folder / "llm"); },
     "the run of llm, which suite.json has a record of"},
    {"AJournalRemoved",
     [](const fs::path& folder, SuitePlan) { fs::remove(folder / "llm/journal.jsonl"); },
     "a journal in llm"},
    {"ItsRunsLieElsewhere",
     [](const fs::path& folder, SuitePlan suite) {
       for (const std::string& workload : suite.workloads) {
         fs::rename(folder / workload, folder.parent_path() / workload);
       }
     },
     "the run of image, which suite.json has a record of"},
    {"AnotherDate",
     [](const fs::path& folder, SuitePlan suite) {
       suite.created_utc = "2027-01-01T10:15:00Z";
       write_suite_record(folder, suite);
     },
     "llm of 2026-01-01T10:15:00Z, as the journal in image says"},
};

class Forgeries : public SuiteVerbs, public ::testing::WithParamInterface<Forgery> {};

TEST_P(Forgeries, AreFoundByEveryVerb) {
  GetParam().forge(folder(), suite_);
  const std::string said = GetParam().said, forged = text_of("s/suite.json");
  const CommandResult verified = verb({"verify", "s"});
  EXPECT_EQ(verified.exit_code, 9) << verified.out;
  EXPECT_NE(verified.out.find("FAILED suite_workloads"), std::string::npos) << verified.out;
  EXPECT_NE(verified.out.find(said), std::string::npos) << verified.out;
  for (const Words& words :
       {Words{"recover", "s"}, Words{"show", "s"}, Words{"show", "s/suite.json"},
        Words{"baseline", "save", "main", "s"}}) {
    expect_line(words, 9, said);
  }
  EXPECT_NE(excluded("s").find("suite.json: [\"not what was measured"), std::string::npos);
  EXPECT_NE(excluded("s").find(said), std::string::npos) << excluded("s");
  EXPECT_EQ(text_of("s/suite.json"), forged);
}

INSTANTIATE_TEST_SUITE_P(Suites, Forgeries, ::testing::ValuesIn(forgeries),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(SuiteVerbs, TakeASoundOne) {
  const std::string written = text_of("s/suite.json");
  const CommandResult verified = verb({"verify", "s"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  EXPECT_NE(verb({"show", "s"}).out.find("suite OPS"), std::string::npos);
  EXPECT_EQ(verb({"rank", "s"}).exit_code, 0);
  EXPECT_EQ(excluded("s"), "");
  EXPECT_EQ(verb({"recover", "s"}).exit_code, 0);
  EXPECT_EQ(text_of("s/suite.json"), written);
  EXPECT_EQ(verb({"pack", "s", "-o", "s.tar.gz"}).exit_code, 0);
  EXPECT_EQ(verb({"verify", "s.tar.gz"}).exit_code, 0);
  fs::remove(folder() / "suite.json");
  EXPECT_EQ(verb({"recover", "s"}).exit_code, 0);
  EXPECT_EQ(text_of("s/suite.json"), written);
}

TEST_F(SuiteVerbs, TellAnEditedNumber) {
  const std::string written = text_of("s/suite.json");
  edit_file(folder() / "suite.json", "\"value\": ", "\"value\": 9");
  EXPECT_EQ(verb({"verify", "s"}).exit_code, 9);
  expect_line({"show", "s"}, 9, "\"value\": 9");
  EXPECT_NE(excluded("s").find("its runs give"), std::string::npos) << excluded("s");
  EXPECT_EQ(verb({"recover", "s"}).exit_code, 0);
  EXPECT_EQ(text_of("s/suite.json"), written);
}

TEST_F(SuiteVerbs, TellAJournalThatWasWrittenAgainForAnotherWorkload) {
  SampleRun run = part_of_suite(fixed_run(), suite_, "llm");
  run.last<WorkloadEvent>().name = "image";
  run.write_finished({folder() / "llm"});
  write_suite_record(folder(), suite_);
  const CommandResult verified = verb({"verify", "s"});
  EXPECT_EQ(verified.exit_code, 9);
  EXPECT_NE(verified.out.find("FAILED llm/suite_workload"), std::string::npos) << verified.out;
  EXPECT_NE(excluded("s").find("suite_workload should be image, not llm"), std::string::npos)
      << excluded("s");
}

TEST_F(SuiteVerbs, CallANarrowedOnePartial) {
  SuitePlan two = suite_;
  two.workloads.pop_back();
  store_suite(folder_ / "two", two);
  EXPECT_EQ(verb({"verify", "two"}).exit_code, 0);
  const CommandResult shown = verb({"show", "two"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.out.find("whole_suite (open)"), std::string::npos) << shown.out;
  EXPECT_EQ(shown.out.find("suite OPS"), std::string::npos) << shown.out;
  EXPECT_EQ(Json::parse(text_of("two/suite.json")).at("status"), "partial");
  EXPECT_NE(excluded("two").find("a partial suite: it has image automl-image of"),
            std::string::npos);
}

TEST_F(SuiteVerbs, SayWhatAnOlderOneDoesNotTell) {
  for (const std::string& workload : suite_.workloads) {
    SampleRun run = part_of_suite(fixed_run(), suite_, workload);
    run.last<StartEvent>().suite.reset();
    run.last<StartEvent>().suite_workload.clear();
    run.write_finished({folder_ / "old" / fs::path(workload)});
  }
  write_suite_record(folder_ / "old", suite_);
  const CommandResult verified = verb({"verify", "old"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out;
  EXPECT_NE(verified.out.find("suite_workloads (not told: an older program"), std::string::npos);
  EXPECT_NE(excluded("old").find("does not name its suite"), std::string::npos);
  EXPECT_NE(verb({"show", "old"}).out.find("named_suite (open)"), std::string::npos);
}

TEST_F(SuiteVerbs, FollowNoLinks) {
  fs::rename(folder() / "llm", folder_ / "elsewhere");
  fs::create_directory_symlink("../elsewhere", folder() / "llm");
  const CommandResult verified = verb({"verify", "s"});
  EXPECT_EQ(verified.exit_code, 9);
  EXPECT_NE(verified.out.find("it is a link"), std::string::npos) << verified.out;
  expect_line({"recover", "s"}, 2, "'llm' is no folder of s (it is a link)");
  expect_line({"show", "s"}, 2, "'llm' is no folder of s (it is a link)");
  EXPECT_NE(excluded("s").find("it is a link"), std::string::npos);
}

TEST_F(ResultVerbs, ARecordWithoutItsJournal) {
  make_runs("a", 1, 12, 0);
  fs::remove(folder_ / "a/run-000/journal.jsonl");
  const CommandResult verified = verb({"verify", "a/run-000"});
  EXPECT_EQ(verified.exit_code, 9);
  EXPECT_NE(verified.out.find("FAILED journal_chain"), std::string::npos) << verified.out;
  const CommandResult recovered = verb({"recover", "a/run-000"});
  EXPECT_EQ(recovered.exit_code, 2);
  EXPECT_EQ(recovered.err, "heteroperf: cannot recover a/run-000 (there is no journal.jsonl)\n");
  const CommandResult shown = verb({"show", "a/run-000"});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_EQ(shown.err,
            "heteroperf: warning: a/run-000/record.json: no journal beside it confirms its "
            "numbers\n");
  const CommandResult ranked = verb({"rank", "a"});
  EXPECT_EQ(ranked.exit_code, 8);
  EXPECT_NE(ranked.out.find("no journal beside it"), std::string::npos) << ranked.out;
}

TEST_F(ResultVerbs, AJournalWithoutItsRecord) {
  make_runs("a", 1, 12, 0);
  fs::remove(folder_ / "a/run-000/record.json");
  const std::string hint = "heteroperf recover a/run-000";
  const CommandResult verified = verb({"verify", "a/run-000"});
  EXPECT_EQ(verified.exit_code, 9);
  EXPECT_NE(verified.out.find(hint), std::string::npos) << verified.out;
  const CommandResult shown = verb({"show", "a/run-000"});
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_NE(shown.err.find(hint), std::string::npos) << shown.err;
  EXPECT_EQ(std::count(shown.err.begin(), shown.err.end(), '\n'), 1) << shown.err;
  const CommandResult ranked = verb({"rank", "a"});
  EXPECT_EQ(ranked.exit_code, 8);
  EXPECT_NE(ranked.out.find("unfinished: a journal without record.json"), std::string::npos)
      << ranked.out;
  EXPECT_EQ(verb({"recover", "a/run-000"}).exit_code, 0);
  EXPECT_EQ(verb({"rank", "a"}).exit_code, 0);
}

}  // namespace
}  // namespace heteroperf::testing
