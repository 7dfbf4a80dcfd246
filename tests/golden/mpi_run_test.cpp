// Runs under MPI: started by the program itself and by a foreign mpirun, and what happens when a
// rank is killed, stopped or interrupted.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const Words mpi_variables{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                          "OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_mpi_yield_when_idle=1"};

Words tiny_mpi_llm(const Words& more) {
  Words words{"run",
              "llm",
              "--size",
              "nano",
              "--micro-batch",
              "2",
              "--set",
              "measure.peak_s=0",
              "--set",
              "measure.evaluation_samples=4",
              "-q",
              "--out",
              "r"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words with_program(Words words) {
  words.insert(words.begin(), heteroperf_path());
  return words;
}

Json record_in(const ScratchFolder& folder) {
  std::ifstream file(folder / "r/record.json");
  std::ostringstream text;
  text << file.rdbuf();
  return Json::parse(text.str());
}

std::size_t journalled_steps(const ScratchFolder& folder) {
  std::ifstream file(folder / "r/journal.jsonl");
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    count += line.find("\"kind\":\"step\"") != std::string::npos;
  }
  return count;
}

/// Bound ranks of one host share no CPU; the others say why they are not bound.
void expect_binding_of_every_rank(const Json& record, int ranks) {
  const Json& bindings = record.at("system").at("binding");
  ASSERT_EQ(bindings.size(), static_cast<std::size_t>(ranks));
  std::set<std::string> taken;
  for (int rank = 0; rank < ranks; ++rank) {
    const Json& one = bindings.at(static_cast<std::size_t>(rank));
    EXPECT_EQ(one.at("rank"), rank);
    EXPECT_NE(one.at("host"), "");
    EXPECT_NE(one.at("cpus"), "");
    EXPECT_EQ(one.contains("reason"), one.at("bound") == false) << one;
    if (one.at("bound") == true) {
      EXPECT_TRUE(taken.insert(one.at("host").get<std::string>() + one.at("cpus").dump()).second)
          << bindings;
    }
  }
}

TEST(MpiRun, StartsItsOwnRanks) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf(tiny_mpi_llm({"--transport", "mpi", "--ranks", "2", "--steps", "4", "--json"}),
                 folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json record = Json::parse(result.out);
  EXPECT_EQ(record.at("scale").at("ranks"), 2);
  EXPECT_EQ(record.at("scale").at("transport"), "mpi");
  expect_binding_of_every_rank(record, 2);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(MpiRun, EveryRankHasALogOfItsOwnEvenOfAFailure) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      tiny_mpi_llm({"--transport", "mpi", "--ranks", "2", "--steps", "20", "--rank-logs", "--set",
                    "optimizer.learning_rate=1e30", "--set", "optimizer.warmup_steps=0"}),
      folder.path());
  EXPECT_EQ(result.exit_code, 6) << result.err;
  for (const char* name : {"r/rank-0.log", "r/rank-1.log"}) {
    std::ifstream file(folder / name);
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(log.find("llm nano"), std::string::npos) << name << log;
    EXPECT_NE(log.find("ended by an error: "), std::string::npos) << name << log;
  }
}

TEST(MpiRun, GivesTheSameLossesAsThreads) {
  const ScratchFolder mpi, threads;
  const Words common{"--ranks", "2", "--steps", "4", "--seed", "3"};
  Words words = tiny_mpi_llm(common);
  ASSERT_EQ(heteroperf(words, threads.path()).exit_code, 0);
  words.insert(words.end(), {"--transport", "mpi"});
  ASSERT_EQ(heteroperf(words, mpi.path()).exit_code, 0);
  const double a = record_in(mpi).at("metrics").at("quality").at("value");
  const double b = record_in(threads).at("metrics").at("quality").at("value");
  EXPECT_NEAR(a, b, 1e-4);
}

TEST(MpiRun, UsesTheLaunchersWorld) {
  const ScratchFolder folder;
  Words words{HETEROPERF_MPIRUN,
              "-n",
              "3",
              heteroperf_path(),
              "run",
              "automl-image",
              "--size",
              "w16",
              "--micro-batch",
              "2",
              "--steps",
              "24",
              "--set",
              "measure.peak_s=0",
              "--set",
              "automl.first_rung_steps=4",
              "--set",
              "automl.evaluation_samples=4",
              "-q",
              "--out",
              "r"};
  Command run(words, folder.path(), mpi_variables);
  const CommandResult result = run.finish();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(record_in(folder).at("scale").at("ranks"), 3);
  expect_binding_of_every_rank(record_in(folder), 3);
  EXPECT_EQ(record_in(folder).at("search").at("master").at("groups_lost"), 0);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(MpiRun, ASearchMeasuresAsLongAsItIsAskedTo) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf({"run",
                                           "automl-image",
                                           "--size",
                                           "w16",
                                           "--transport",
                                           "mpi",
                                           "--ranks",
                                           "2",
                                           "--micro-batch",
                                           "2",
                                           "--duration",
                                           "1.5",
                                           "--set",
                                           "measure.peak_s=0",
                                           "--set",
                                           "automl.first_rung_steps=4",
                                           "--set",
                                           "automl.evaluation_samples=4",
                                           "-q",
                                           "--out",
                                           "r"},
                                          folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json metrics = record_in(folder).at("metrics");
  EXPECT_GE(metrics.at("measured_s").get<double>(), 1.5);
  EXPECT_EQ(metrics.at("quality").at("final"), true);
  EXPECT_EQ(heteroperf({"verify", "r"}, folder.path()).exit_code, 0);
}

TEST(MpiRun, RanksUnlikeTheLaunchersWorldAreRefused) {
  const ScratchFolder folder;
  Words words = tiny_mpi_llm({"--ranks", "3", "--steps", "2"});
  words.insert(words.begin(), {HETEROPERF_MPIRUN, "-n", "2", heteroperf_path()});
  Command run(words, folder.path(), mpi_variables);
  const CommandResult result = run.finish();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--ranks 3 does not fit the launcher's world"), std::string::npos)
      << result.err;
}

struct BadData {
  const char* name;
  Words arguments;
  const char* message;
};
class MpiBadData : public ::testing::TestWithParam<BadData> {};

TEST_P(MpiBadData, GetsOneMessage) {
  const ScratchFolder folder;
  folder.write("short.txt", "too short");
  folder.write("idx/images-idx3-ubyte",
               std::string("\0\0\x08\x03\0\0\0\x64\0\0\0\x1c\0\0\0\x1c", 16) + "cut");
  folder.write("idx/labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x64", 8));
  folder.write("none/journal.jsonl", "");
  Words words{"run", "--ranks", "2", "--transport", "mpi", "--steps", "2", "--out", "r"};
  words.insert(words.begin() + 1, GetParam().arguments.begin(), GetParam().arguments.end());
  const CommandResult plain = heteroperf(words, folder.path());
  EXPECT_EQ(plain.exit_code, 2) << plain.err;
  EXPECT_EQ(plain.out, "");
  EXPECT_EQ(plain.err.find(std::string("heteroperf: ") + GetParam().message), 0u) << plain.err;
  EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << plain.err;
  words.emplace_back("--json");
  const CommandResult json = heteroperf(words, folder.path());
  EXPECT_EQ(json.exit_code, 2) << json.err;
  ASSERT_TRUE(Json::accept(json.out)) << json.out;
  EXPECT_EQ(Json::parse(json.out).at("error").at("kind"), "usage");
  EXPECT_FALSE(std::ifstream(folder / "r/journal.jsonl").is_open());
}

const BadData bad_data[] = {
    {"MissingFile", {"llm", "--data", "text:nowhere.txt"}, "cannot read 'nowhere.txt'"},
    {"FileTooShort", {"llm", "--data", "text:short.txt"}, "'short.txt' holds 9 tokens"},
    {"MissingFolder", {"image", "--data", "idx:nowhere"}, "'nowhere' is not a folder"},
    {"TruncatedImages",
     {"image", "--data", "idx:idx"},
     "'idx/images-idx3-ubyte' is damaged at offset 19"},
    {"MissingHistory",
     {"automl-image", "--set", "automl.history=nowhere"},
     "automl.history = 'nowhere' is not usable (no such run"},
    {"EmptyHistory",
     {"automl-image", "--set", "automl.history=none"},
     "automl.history = 'none' is not usable"},
};

INSTANTIATE_TEST_SUITE_P(MpiRun, MpiBadData, ::testing::ValuesIn(bad_data),
                         [](const auto& test) { return std::string(test.param.name); });

/// What can be seen without reading data is refused before mpirun is even looked for.
TEST(MpiRun, CheapChecksComeBeforeAnyRank) {
  const ScratchFolder folder;
  const auto without_mpirun = [&](const std::string& data) {
    return heteroperf(tiny_mpi_llm({"--transport", "mpi", "--ranks", "2", "--data", data}),
                      folder.path(), {"PATH=/nonexistent"});
  };
  folder.write("short.txt", "too short");
  EXPECT_EQ(without_mpirun("text:nowhere.txt").exit_code, 2);
  EXPECT_EQ(without_mpirun("text:short.txt").exit_code, 5) << "the ranks read it";
}

TEST(MpiRun, EveryVerbAnswersOnce) {
  const ScratchFolder folder;
  Command list({HETEROPERF_MPIRUN, "-n", "2", heteroperf_path(), "list", "models", "--json"},
               folder.path(), mpi_variables);
  const CommandResult listed = list.finish();
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_TRUE(Json::accept(listed.out)) << listed.out;
  Command bad(
      {HETEROPERF_MPIRUN, "-n", "3", heteroperf_path(), "run", "llm", "--set", "sed=1", "--json"},
      folder.path(), mpi_variables);
  const CommandResult refused = bad.finish();
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_TRUE(Json::accept(refused.out)) << refused.out;
  const std::string message = "unknown configuration key 'sed'";
  const std::size_t at = refused.err.find(message);
  EXPECT_NE(at, std::string::npos) << refused.err;
  EXPECT_EQ(refused.err.find(message, at + 1), std::string::npos) << refused.err;
}

/// The others learn of it inside a collective.
TEST(MpiRun, WhatOnlyTheFirstRankFindsIsSaidOnce) {
  const ScratchFolder folder;
  const std::string file = folder.write("file", "no folder");
  const CommandResult refused =
      heteroperf({"run", "llm", "--size", "nano", "--steps", "2", "--ranks", "2", "--transport",
                  "mpi", "--set", "measure.peak_s=0", "--out", file + "/r", "--json"},
                 folder.path());
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  ASSERT_TRUE(Json::accept(refused.out)) << refused.out;
  const std::string message = Json::parse(refused.out)["error"]["message"];
  EXPECT_TRUE(message.starts_with("cannot create the folder")) << message;
}

const Words long_run{"--transport", "mpi", "--ranks", "2",
                     "--duration",  "300", "--set",   "comm.timeout_s=4"};

/// A long run of two ranks that has journalled some steps.
class MpiFault : public ::testing::Test {
 protected:
  explicit MpiFault(const Words& words = tiny_mpi_llm(long_run))
      : run_(with_program(words), folder_.path()) {
    const bool stepped = run_.wait_until([&] { return journalled_steps(folder_) >= 3; });
    EXPECT_TRUE(stepped) << run_.finish(std::chrono::seconds(0)).err;
  }

  pid_t rank(int number) {
    for (pid_t pid : descendants(run_.pid())) {
      if (environment_of(pid, "OMPI_COMM_WORLD_RANK") == std::to_string(number)) return pid;
    }
    ADD_FAILURE() << "no process of rank " << number;
    return 0;
  }

  /// No file of the first rank may grow any more, as on a full disk.
  void fill_the_disk() {
    const rlimit limit{1024, RLIM_INFINITY};
    ASSERT_EQ(prlimit(rank(0), RLIMIT_FSIZE, &limit, nullptr), 0) << std::strerror(errno);
  }

  /// Ends as it shall, with one document on stdout, of this kind.
  CommandResult expect_one_error(int exit_code, const std::string& kind) {
    CommandResult result = run_.finish();
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    const Json document = Json::parse(result.out, nullptr, false);
    const bool tells = document.is_object() && document.contains("error");
    EXPECT_TRUE(tells && document["error"]["kind"] == kind) << result.out;
    return result;
  }

  /// The one document and stderr tell the cause, and what to do with what was measured.
  void expect_full_disk_told() {
    const CommandResult result = expect_one_error(6, "run_failed");
    EXPECT_NE(result.out.find("cannot write r/journal.jsonl"), std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("rank 0 failed"), std::string::npos) << result.out;
    EXPECT_NE(result.err.find("Try `heteroperf recover r`"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("rank 0: rank 0 failed"), std::string::npos) << result.err;
    expect_recoverable();
  }

  void expect_end(int exit_code, double within_s) {
    const auto start = std::chrono::steady_clock::now();
    const CommandResult result = run_.finish(std::chrono::seconds(60));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    // A deadline of the program's contract, not a speed: half a minute of slack for a busy machine.
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::duration<double>(within_s + 30));
  }

  void expect_recoverable() {
    if (!std::ifstream(folder_ / "r/record.json")) {
      EXPECT_EQ(heteroperf({"recover", "r"}, folder_.path()).exit_code, 0);
    }
    EXPECT_NE(record_in(folder_).at("status"), "complete");
    EXPECT_EQ(heteroperf({"verify", "r"}, folder_.path()).exit_code, 0);
  }

  ScratchFolder folder_;
  Command run_;
};

TEST_F(MpiFault, AKilledRankEndsTheRun) {
  kill(rank(1), SIGKILL);
  expect_end(6, 10);
  expect_recoverable();
}

/// Two groups of one rank, which need each other for nothing but the master's answers.
class SearchFault : public MpiFault {
 protected:
  explicit SearchFault(const Words& more = {}) : MpiFault(search(more)) {}

  static Words search(const Words& more) {
    Words words{"run",
                "automl-image",
                "--size",
                "w16",
                "--micro-batch",
                "2",
                "-q",
                "--out",
                "r",
                "--set",
                "measure.peak_s=0",
                "--set",
                "automl.first_rung_steps=100000"};
    words.insert(words.end(), long_run.begin(), long_run.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(SearchFault, AKilledRankEndsTheRun) {
  kill(rank(1), SIGKILL);
  expect_end(6, 10);
  expect_recoverable();
}

/// Its journal is written by a handler of the control channel, beside rank 0's own work.
class JsonSearchFault : public SearchFault {
 protected:
  JsonSearchFault() : SearchFault({"--json"}) {}
};

TEST_F(JsonSearchFault, AFullDiskIsToldByTheFirstRank) {
  fill_the_disk();
  expect_full_disk_told();
}

class JsonFault : public MpiFault {
 protected:
  JsonFault() : MpiFault(with_json()) {}

  static Words with_json() {
    Words words = tiny_mpi_llm(long_run);
    words.emplace_back("--json");
    return words;
  }
};

TEST_F(JsonFault, AFullDiskIsToldByTheFirstRankAlone) {
  fill_the_disk();
  expect_full_disk_told();
}

TEST_F(JsonFault, AKilledRankIsOneDocument) {
  kill(rank(1), SIGKILL);
  expect_one_error(6, "run_failed");
}

TEST_F(JsonFault, TheKilledFirstRankIsOneDocumentOfTheNext) {
  kill(rank(0), SIGKILL);
  expect_one_error(6, "run_failed");
}

TEST_F(JsonFault, AnInterruptIsOneDocument) {
  kill(run_.pid(), SIGINT);
  const CommandResult result = run_.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  ASSERT_TRUE(Json::accept(result.out)) << result.out;
  EXPECT_EQ(Json::parse(result.out).at("status"), "partial");
}

/// A pipeline with a replica beside it, saved after every step.
class PipelineFault : public MpiFault {
 protected:
  PipelineFault() : MpiFault(tiny_mpi_llm(pipeline())) {}

  static Words pipeline() {
    return {"--transport",
            "mpi",
            "--ranks",
            "4",
            "--pp",
            "2",
            "--dp",
            "2",
            "--schedule",
            "1f1b",
            "--micro-batches",
            "4",
            "--duration",
            "300",
            "--set",
            "comm.timeout_s=4",
            "--set",
            "checkpoint.every_steps=1"};
  }
};

TEST_F(PipelineFault, TrainingGoesOnFromTheLastCheckpointUnderAnotherPlan) {
  kill(rank(3), SIGKILL);
  expect_end(6, 10);
  expect_recoverable();
  const CommandResult resumed =
      heteroperf({"resume", "r", "--ranks", "1", "--pp", "1", "--transport", "threads",
                  "--duration", "0.1", "--set", "checkpoint.every_steps=0", "-q", "--out", "again"},
                 folder_.path());
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(heteroperf({"verify", "again"}, folder_.path()).exit_code, 0);
}

TEST_F(PipelineFault, AStoppedRankTimesOut) {
  kill(rank(2), SIGSTOP);
  expect_end(7, 10);
  expect_recoverable();
}

TEST_F(MpiFault, TheKilledFirstRankEndsTheRun) {
  kill(rank(0), SIGKILL);
  expect_end(6, 10);
  expect_recoverable();
}

TEST_F(MpiFault, AStoppedRankTimesOut) {
  kill(rank(1), SIGSTOP);
  expect_end(7, 10);
  expect_recoverable();
}

TEST_F(MpiFault, SigintReachesEveryRank) {
  kill(run_.pid(), SIGINT);
  expect_end(130, 10);
  EXPECT_EQ(record_in(folder_).at("status"), "partial");
  EXPECT_EQ(record_in(folder_).at("status_reason"), "SIGINT");
}

TEST_F(MpiFault, ASignalThatComesTwiceIsOneWish) {
  for (int i = 0; i < 3; ++i) {  // as timeout(1) does; the launcher must see each
    kill(run_.pid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  expect_end(130, 10);
  EXPECT_EQ(record_in(folder_).at("status"), "partial");
  EXPECT_EQ(record_in(folder_).at("status_reason"), "SIGTERM");
}

TEST_F(MpiFault, SigtermReachesEveryRank) {
  kill(run_.pid(), SIGTERM);
  expect_end(130, 10);
  EXPECT_EQ(record_in(folder_).at("status"), "partial");
}

}  // namespace
}  // namespace heteroperf::testing
