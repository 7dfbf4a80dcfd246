#include "results/exports/run_export.hpp"
#include "results/record/record.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

std::string shown(const SampleRun& run, DocumentForm format = DocumentForm::console) {
  return show_record(build_record(run.journal()), "results/run", format, {});
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

TEST(Show, TableHoldsWhatTheContractAsksFor) {
  const std::string table = shown(fixed_run());
  EXPECT_TRUE(matches(table, "workload +image resnet18, 11.17 M parameters, fp32\n")) << table;
  EXPECT_TRUE(matches(table, "scale +2 ranks, 2 × cpu with 1 thread, transport threads\n"))
      << table;
  EXPECT_TRUE(matches(table, "throughput +5\\.229 ± [0-9.e-]+ image/s \\(95 % CI ")) << table;
  EXPECT_TRUE(matches(table, "OPS +[0-9.]+ ± [0-9.]+ Mop/s \\(95 % CI ")) << table;
  EXPECT_TRUE(
      matches(table, "quality +accuracy 0\\.8000 on 100 samples \\(target 0\\.666667: met\\)\n"))
      << table;
  EXPECT_TRUE(matches(table, "validity +closed, rankable\n")) << table;
  EXPECT_TRUE(matches(table, "record +results/run/record\\.json\n")) << table;
  EXPECT_TRUE(matches(table, "reproduce +heteroperf run image --seed 42\n")) << table;
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

TEST(Show, InvalidRunHasReasonsAndNoScore) {
  SampleRun run = fixed_run();
  run.last<ChecksumEvent>().fingerprint = "other";
  const std::string table = shown(run);
  EXPECT_FALSE(matches(table, "OPS|throughput|regulated")) << table;
  EXPECT_TRUE(matches(table, "validity +invalid, not rankable\n")) << table;
  EXPECT_TRUE(matches(table, "checksums \\(invalid\\): expected .*, found other on rank 1\\."))
      << table;
}

TEST(Show, EveryStageOfARunHasATable) {
  const SampleRun run = search_run();
  for (std::size_t lines = 1; lines <= run.lines.size(); ++lines) {
    SampleRun cut = run;
    cut.lines.resize(lines);
    for (const DocumentForm format :
         {DocumentForm::console, DocumentForm::markdown, DocumentForm::csv}) {
      EXPECT_NE(shown(cut, format), "");
    }
  }
}

TEST(Show, ColoursOnlyWhenAsked) {
  const std::string record = build_record(fixed_run().journal());
  EXPECT_NE(show_record(record, "r", DocumentForm::console, {Colour::on}).find('\x1b'),
            std::string::npos);
  EXPECT_EQ(show_record(record, "r", DocumentForm::markdown, {Colour::on}).find('\x1b'),
            std::string::npos);
}

/// A stranger may have written all that a journal says of itself.
TEST(Show, NoTextOfARunReachesTheTerminalsControls) {
  SampleRun run = fixed_run();
  run.last<StartEvent>().reproduce = "heteroperf \x1b[2J\r\nvalidity  closed";
  const std::string table = shown(run);
  EXPECT_EQ(table.find_first_of("\x1b\r"), std::string::npos) << table;
  EXPECT_EQ(table.find("\nvalidity  closed"), std::string::npos) << table;
}

TEST(Show, CsvHasAsManyCellsAsColumns) {
  SampleRun run = fixed_run();
  run.last<WorkloadEvent>().size = "a,\"b\"";
  const std::string csv = shown(run, DocumentForm::csv);
  const std::size_t line_end = csv.find('\n');
  const std::string header = csv.substr(0, line_end);
  std::string row = csv.substr(line_end + 1);
  const std::string quoted = "\"a,\"\"b\"\"\"";
  ASSERT_NE(row.find(quoted), std::string::npos) << row;
  row.replace(row.find(quoted), quoted.size(), "size");
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), std::count(row.begin(), row.end(), ','));
  EXPECT_NE(header.find("metrics.ops_per_second.value"), std::string::npos);
}

TEST(Show, JsonIsTheRecordItself) {
  const std::string record = build_record(fixed_run().journal());
  EXPECT_EQ(show_record(record, "r", DocumentForm::json, {Colour::on}), record);
}

TEST(Show, ReadsRunsAndSuitesFromTheirFolder) {
  const TemporaryFolder folder;
  const SuitePlan plan = whole_suite();
  part_of_suite(fixed_run(), plan, "image").write_finished({folder.path() / "image"});
  part_of_suite(search_run(), plan, "automl-image")
      .write_finished({folder.path() / "automl-image"});
  write_suite_record(folder.path(), plan);
  EXPECT_TRUE(matches(show(folder.path() / "image", DocumentForm::console, {}), "OPS +"));
  const std::string table = show(folder.path(), DocumentForm::console, {});
  EXPECT_TRUE(matches(table, "image +.* kop/s .*complete, closed\n")) << table;
  EXPECT_TRUE(matches(table, "llm +no score, partial, no record\n")) << table;
  EXPECT_TRUE(matches(table, "validity +invalid, not rankable\n")) << table;
  EXPECT_FALSE(matches(table, "suite OPS")) << table;
  EXPECT_TRUE(matches(table, "workload llm \\(invalid\\): expected closed, found no record"))
      << table;
  const std::string csv = show(folder.path(), DocumentForm::csv, {});
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

TEST(Show, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const RunFiles files{folder.path() / "run"};
  fixed_run().write_finished(files);
  const std::string good = read_text_file(files.record());
  for (const std::string& bad : {std::string("{"), std::string("{}"), good.substr(0, 400),
                                 std::string("{\"_format\":\"heteroperf-record\",\"_version\":2}"),
                                 std::string("{\"_format\":\"heteroperf-record\",\"_version\":1,"
                                             "\"metrics\":{\"ops_per_second\":{}}}")}) {
    write_file_atomically(files.record(), bad);
    for (const DocumentForm form :
         {DocumentForm::console, DocumentForm::markdown, DocumentForm::csv}) {
      try {
        show(files.folder, form, {});
        FAIL() << bad;
      } catch (const UserError& error) {
        const std::string text = error.what(), path = files.record().string();
        EXPECT_NE(text.find(path), std::string::npos) << text;
        EXPECT_EQ(text.find(path), text.rfind(path)) << text;
      }
    }
  }
  EXPECT_THROW(show(folder.path(), DocumentForm::console, {}), UserError);
}

std::string hint_of(const std::filesystem::path& path) {
  try {
    show(path, DocumentForm::console, {});
  } catch (const UserError& error) {
    return error.problems().front().suggestion;
  }
  ADD_FAILURE() << "it was shown";
  return {};
}

TEST(Show, SaysWhatCanStillBeDoneAboutADamagedFile) {
  const TemporaryFolder folder;
  const SuitePlan plan = whole_suite();
  const RunFiles suite{folder.path()}, part{folder.path() / "image"};
  part_of_suite(fixed_run(), plan, "image").write_finished(part);
  write_suite_record(folder.path(), plan);
  for (const std::string& bad :
       {std::string("{"), std::string("{\"_format\":\"heteroperf-suite\",\"_version\":1}")}) {
    write_file_atomically(suite.suite(), bad);
    EXPECT_EQ(hint_of(folder.path()),
              "Move it away: heteroperf recover of its folder makes it again where the journals "
              "name the suite.");
    EXPECT_THROW(recover(folder.path()), UserError);
  }
  for (const std::string& bad :
       {std::string("{"), std::string("{\"_format\":\"heteroperf-record\",\"_version\":1,"
                                      "\"metrics\":{\"ops_per_second\":{}}}")}) {
    write_file_atomically(part.record(), bad);
    EXPECT_EQ(hint_of(part.folder), "heteroperf recover rebuilds a record from its journal.");
    recover(part.folder);
    EXPECT_NE(show(part.folder, DocumentForm::console, {}), "");
  }
}

TEST(DocumentForm, IsParsedOrCorrected) {
  using enum DocumentForm;
  EXPECT_EQ(parse_form("md", {console, json, markdown}), markdown);
  try {
    parse_form("jsn", {console, json, markdown});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'json'?"), std::string::npos);
  }
}

}  // namespace
}  // namespace heteroperf
