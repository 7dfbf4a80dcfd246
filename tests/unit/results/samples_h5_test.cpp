#include "results/record/samples_h5.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "metrics/base/error.hpp"
#include "metrics/base/text_file.hpp"
#include "results/record/record.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/sample_columns.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

struct Archive {
  TemporaryFolder folder;
  std::string path = (folder.path() / "samples.h5").string();
};

TEST(SampleTables, HaveColumnsOfEqualLength) {
  const Journal journal = search_run().journal();
  for (const SampleTable& table : sample_tables(journal)) {
    for (const SampleColumn& column : table.columns) {
      const auto rows = [](const SampleColumn& c) {
        return std::visit([](const auto& values) { return values.size(); }, c.values);
      };
      EXPECT_EQ(rows(column), rows(table.columns.front())) << table.name << "/" << column.name;
      EXPECT_NE(std::string(column.long_name), "");
    }
  }
}

const SampleTable& table_called(const std::vector<SampleTable>& tables, const std::string& name) {
  for (const SampleTable& table : tables) {
    if (name == table.name) return table;
  }
  throw std::out_of_range(name);
}

template <class T>
std::vector<T> column_of(const SampleTable& table, const std::string& name) {
  for (const SampleColumn& column : table.columns) {
    if (name == column.name) return std::get<std::vector<T>>(column.values);
  }
  throw std::out_of_range(name);
}

TEST(SampleTables, StepsHaveThePhaseOfTheirGroup) {
  SampleRun run = fixed_run({.warmup_steps = 2, .steps = 3});
  const std::vector<SampleTable> tables = sample_tables(run.journal());
  EXPECT_EQ(column_of<std::uint8_t>(table_called(tables, "steps"), "phase"),
            (std::vector<std::uint8_t>{1, 1, 2, 2, 2}));
  run.lines.insert(run.lines.begin() + static_cast<std::ptrdiff_t>(run.index<StepEvent>()),
                   {run.lines.front().t_ns, PhaseEvent{Phase::measure, 0}});
  const std::vector<SampleTable> own = sample_tables(run.journal());
  EXPECT_EQ(column_of<std::uint8_t>(table_called(own, "steps"), "phase"),
            (std::vector<std::uint8_t>{2, 2, 2, 2, 2}));
}

TEST(SampleTables, RankStepsAreARowPerValue) {
  SampleRun run = fixed_run();
  run.insert_before_stop(RankStepsEvent{1, 0, 2, 5, 2, {8, 9, 7}});
  const std::vector<SampleTable> tables = sample_tables(run.journal());
  const SampleTable& table = table_called(tables, "rank_steps");
  EXPECT_EQ(column_of<std::int64_t>(table, "rank"), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(column_of<std::uint64_t>(table, "step"), (std::vector<std::uint64_t>{2, 4, 6}));
  EXPECT_EQ(column_of<std::uint64_t>(table, "steps"), (std::vector<std::uint64_t>{2, 2, 1}));
  EXPECT_EQ(column_of<std::int64_t>(table, "compute_ns"), (std::vector<std::int64_t>{8, 9, 7}));
}

TEST(SampleTables, RanksHavePlaceMemoryAndTime) {
  const std::vector<SampleTable> tables = sample_tables(planned_run().journal());
  const SampleTable& table = table_called(tables, "ranks");
  EXPECT_EQ(column_of<std::int64_t>(table, "position"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(column_of<std::string>(table, "device_class"),
            (std::vector<std::string>{"fast", "slow"}));
  EXPECT_EQ(column_of<std::string>(table, "stages"), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(column_of<std::int64_t>(table, "peak_bytes"), (std::vector<std::int64_t>{1000, 1001}));
  EXPECT_EQ(column_of<std::int64_t>(table, "steps"), (std::vector<std::int64_t>{30, 30}));
  const double rank_wall_s = column_of<double>(table, "wall_s").front();
  EXPECT_NEAR(column_of<double>(table, "compute_s").front(), 0.75 * rank_wall_s, 1e-9);
  const std::vector<SampleTable> bare = sample_tables(fixed_run().journal());
  EXPECT_EQ(column_of<std::int64_t>(table_called(bare, "ranks"), "position"),
            (std::vector<std::int64_t>{-1, -1}));
}

TEST(SamplesH5, AgreesWithTheJournalItCameFrom) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  for (const SampleRun& run : {fixed_run(), search_run(), planned_run()}) {
    const Archive archive;
    const Journal journal = run.journal();
    const std::string record = build_record(journal);
    write_samples_h5(archive.path, journal, record);
    EXPECT_EQ(compare_samples_h5(archive.path, journal, record), "");
    EXPECT_NE(compare_samples_h5(archive.path, journal, record + " "), "");
  }
}

TEST(SamplesH5, IsAFunctionOfTheJournal) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  const Archive first, second;
  const Journal journal = fixed_run().journal();
  const std::string record = build_record(journal);
  write_samples_h5(first.path, journal, record);
  // HDF5 notes times by the second where it is not told otherwise.
  for (const std::time_t now = std::time(nullptr); std::time(nullptr) == now;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  write_samples_h5(second.path, journal, record);
  EXPECT_TRUE(read_text_file(first.path) == read_text_file(second.path));
}

TEST(SamplesH5, NamesTheColumnThatDiffers) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  const Archive archive;
  SampleRun run = fixed_run();
  const std::string record = build_record(run.journal());
  write_samples_h5(archive.path, run.journal(), record);
  run.last<StepEvent>().loss += 1e-9;
  EXPECT_EQ(compare_samples_h5(archive.path, run.journal(), record),
            "the column steps/loss differs from the journal");
  run = fixed_run();
  run.lines.erase(run.lines.begin() + static_cast<std::ptrdiff_t>(run.index<EvalEvent>()));
  EXPECT_EQ(compare_samples_h5(archive.path, run.journal(), record),
            "the column evaluations/group differs from the journal");
}

TEST(SamplesH5, HoldsAJournalWithoutSteps) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  const Archive archive;
  SampleRun run = fixed_run();
  run.lines.resize(2);
  const std::string record = build_record(run.journal());
  write_samples_h5(archive.path, run.journal(), record);
  EXPECT_EQ(compare_samples_h5(archive.path, run.journal(), record), "");
}

TEST(SamplesH5, ReportsADamagedArchive) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  const Archive archive;
  const Journal journal = fixed_run().journal();
  const std::string record = build_record(journal);
  write_samples_h5(archive.path, journal, record);
  const auto size = std::filesystem::file_size(archive.path);
  for (const std::uintmax_t kept : {std::uintmax_t{0}, std::uintmax_t{100}, size / 2}) {
    std::filesystem::resize_file(archive.path, kept);
    EXPECT_NE(compare_samples_h5(archive.path, journal, record), "") << kept;
  }
  EXPECT_NE(compare_samples_h5(archive.path + ".no", journal, record), "");
}

TEST(SamplesH5, FailsWithThePathWhereItCannotBeWritten) {
  const Journal journal = fixed_run().journal();
  try {
    write_samples_h5("/proc/heteroperf/samples.h5", journal, "{}");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/heteroperf/samples.h5"), std::string::npos);
  }
}

std::string output_of(const std::string& command) {
  std::string output;
  std::array<char, 4096> piece{};
  FILE* pipe = ::popen(command.c_str(), "r");
  while (const std::size_t size = std::fread(piece.data(), 1, piece.size(), pipe)) {
    output.append(piece.data(), size);
  }
  return ::pclose(pipe) == 0 ? output : "";
}

TEST(SamplesH5, OpensWithH5dump) {
  if (!samples_h5_built()) GTEST_SKIP() << "not built with HDF5";
  if (output_of("h5dump --version 2>/dev/null").empty()) GTEST_SKIP() << "h5dump is not installed";
  const Archive archive;
  SampleRun run = fixed_run();
  run.last<StepEvent>().ops_strict = Ops::from_words(7, 11);
  write_samples_h5(archive.path, run.journal(), build_record(run.journal()));
  const std::string header = output_of("h5dump -H -p " + archive.path);
  for (const char* part :
       {"ATTRIBUTE \"record_sha256\"", "GROUP \"steps\"", "GROUP \"trials\"",
        "DATASET \"t_end_ns\"", "H5T_STD_I64LE", "H5S_UNLIMITED", "CHUNKED", "COMPRESSION DEFLATE",
        "ATTRIBUTE \"units\"", "GROUP \"ranks\"", "GROUP \"rank_steps\"", "DATASET \"phase\"",
        "ATTRIBUTE \"DIMENSION_LIST\"", "ATTRIBUTE \"REFERENCE_LIST\""}) {
    EXPECT_NE(header.find(part), std::string::npos) << part;
  }
  EXPECT_NE(output_of("h5dump -a /steps/t_end_ns/CLASS " + archive.path).find("DIMENSION_SCALE"),
            std::string::npos);
  EXPECT_NE(output_of("h5dump -y -w 1 -d /steps/ops_hi " + archive.path).find("7"),
            std::string::npos);
}

}  // namespace
}  // namespace heteroperf
