// `comm` and `probe` as their users meet them, and what happens when a rank dies on the way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json comm(Words words, int exit_code = 0, const Words& environment = {}) {
  words.insert(words.begin(), "comm");
  words.emplace_back("--json");
  const CommandResult result = heteroperf(words, ".", environment);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return Json::parse(result.out);
}

TEST(Comm, MeasuresAndChecksASweep) {
  const Json json = comm(
      {"allreduce", "-b", "8", "-e", "64K", "-f", "8", "--ranks", "3", "--iters", "5", "--check"});
  EXPECT_EQ(json.at("_format"), "heteroperf-comm");
  EXPECT_EQ(json.at("ranks"), 3);
  EXPECT_EQ(json.at("clusters"), Json::parse("[[0,1,2]]"));
  std::vector<int> sizes;
  for (const Json& result : json.at("results")) {
    sizes.push_back(result.at("bytes"));
    EXPECT_EQ(result.at("wrong"), 0);
    EXPECT_EQ(result.at("in_place").at("wrong"), 0);
    EXPECT_EQ(result.at("wire"), "fp32");
    EXPECT_GT(result.at("predicted_s"), 0.0);
    const Json& time = result.at("time_s");
    EXPECT_GT(time.at("min"), 0.0);
    EXPECT_LE(time.at("min"), time.at("median"));
    EXPECT_LE(time.at("median"), time.at("p95"));
    EXPECT_LE(time.at("ci95").at(0), time.at("median"));
    EXPECT_GE(time.at("ci95").at(1), time.at("median"));
    const double algbw = result.at("bytes").get<double>() / time.at("median").get<double>() / 1e9;
    EXPECT_NEAR(result.at("algbw"), algbw, algbw * 1e-9);
    EXPECT_NEAR(result.at("busbw"), algbw * 4 / 3, algbw * 1e-9);
  }
  EXPECT_EQ(sizes, (std::vector<int>{8, 64, 512, 4096, 32768}));
}

TEST(Comm, EveryCollectiveIsRightAndRounded) {
  for (const char* name :
       {"allreduce", "reducescatter", "allgather", "broadcast", "reduce", "alltoall", "sendrecv"}) {
    const Json json =
        comm({name, "-b", "1000", "-e", "1000", "--ranks", "3", "--iters", "3", "--check"});
    const bool blocks = name == std::string("reducescatter") || name == std::string("allgather") ||
                        name == std::string("alltoall");
    EXPECT_EQ(json.at("results").at(0).at("bytes"), blocks ? 996 : 1000) << name;
    EXPECT_EQ(json.at("results").at(0).at("wrong"), 0) << name;
  }
}

TEST(Comm, TypesAndReductions) {
  for (const char* type : {"f32", "f64", "bf16", "f16", "i32", "i64"}) {
    for (const char* op : {"sum", "min", "max", "avg"}) {
      const Json json = comm({"allreduce", "-b", "4K", "-e", "4K", "--ranks", "2", "--iters", "2",
                              "--check", "--type", type, "--op", op});
      EXPECT_EQ(json.at("results").at(0).at("wrong"), 0) << type << " " << op;
    }
  }
}

TEST(Comm, ClustersByLabelCrossTheBridgeInTheAskedWire) {
  for (const char* algorithm : {"leader", "split_rail", "auto"}) {
    for (const char* wire : {"fp32", "bf16", "int8"}) {
      const Json json =
          comm({"allreduce", "-b", "64K", "-e", "64K", "--ranks", "4", "--clusters", "a,b,b,a",
                "--algorithm", algorithm, "--wire", wire, "--iters", "3", "--check"});
      EXPECT_EQ(json.at("clusters"), Json::parse("[[0,3],[1,2]]"));
      const Json& result = json.at("results").at(0);
      EXPECT_EQ(result.at("wrong"), 0) << algorithm << " " << wire;
      const bool crosses_once =
          result.at("algorithm") == "leader" || result.at("algorithm") == "split_rail";
      if (!crosses_once) continue;
      // Both clusters send the whole vector once; int8 carries a scale per 256 values.
      EXPECT_EQ(result.at("logical_bytes"), 2 * 65536);
      const int ratio_percent = wire == std::string("fp32")   ? 100
                                : wire == std::string("bf16") ? 50
                                                              : 26;
      EXPECT_LE(result.at("wire_bytes").get<int>() * 100,
                result.at("logical_bytes").get<int>() * ratio_percent);
    }
  }
}

TEST(Comm, ForcedRangesDecide) {
  const Json json =
      comm({"allreduce", "-b", "1K", "-e", "64K", "-f", "64", "--ranks", "3", "--algorithm",
            "recursive_doubling:0-8K;ring:8193-max", "--iters", "3", "--check"});
  EXPECT_EQ(json.at("results").at(0).at("algorithm"), "recursive_doubling");
  EXPECT_EQ(json.at("results").at(1).at("algorithm"), "ring");
}

TEST(Comm, NoElementsAndCsv) {
  const CommandResult result = heteroperf({"comm", "allgather", "-b", "0", "-e", "0", "--ranks",
                                           "2", "--iters", "2", "--check", "--csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string heading, row, rest;
  std::getline(lines, heading);
  std::getline(lines, row);
  EXPECT_EQ(std::count(heading.begin(), heading.end(), ','),
            std::count(row.begin(), row.end(), ','));
  EXPECT_EQ(row.substr(0, 4), "0,0,");
  EXPECT_FALSE(std::getline(lines, rest));
}

TEST(Comm, BandwidthGate) {
  const Words words{"comm", "allreduce", "-b", "1M", "-e", "1M", "--ranks", "2", "--iters", "3"};
  Words impossible = words, easy = words;
  impossible.insert(impossible.end(), {"--min-bw", "1000000"});
  easy.insert(easy.end(), {"--min-bw", "0.000001"});
  EXPECT_EQ(heteroperf(impossible).exit_code, 3);
  EXPECT_EQ(heteroperf(easy).exit_code, 0);
}

TEST(Comm, TheDocumentIsAlsoWritten) {
  const ScratchFolder folder;
  const CommandResult result = heteroperf(
      {"comm", "broadcast", "-b", "1K", "-e", "1K", "--ranks", "2", "--iters", "2", "-o", "c.json"},
      folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::ifstream file(folder / "c.json");
  EXPECT_EQ(Json::parse(file).at("results").size(), 1U);
}

TEST(Comm, AFileThatCannotBeWrittenIsOneDocument) {
  const Json json = comm({"allreduce", "-b", "8", "-e", "64", "--ranks", "2", "--iters", "2",
                          "--warmup", "0", "--out", "/dev/full"},
                         6);
  EXPECT_EQ(json.at("status"), "failed");
  EXPECT_EQ(json.at("error").at("details").at(0).at("problem"), "cannot write /dev/full");
  EXPECT_FALSE(json.at("results").empty());
}

TEST(Comm, BytesAreSummedToo) {
  for (const char* op : {"sum", "max", "avg"}) {
    const Json json = comm({"allreduce", "--type", "u8", "--op", op, "-b", "1000", "-e", "1000",
                            "--ranks", "3", "--iters", "3", "--check"});
    EXPECT_EQ(json.at("results").at(0).at("wrong"), 0) << op;
  }
}

TEST(Comm, TakesTheKeysOfComm) {
  const Json json = comm({"allreduce", "-e", "8", "--ranks", "2", "--iters", "3", "--check",
                          "--set", "comm.timeout_s=5", "--set", "comm.check=true"});
  EXPECT_EQ(json.at("results").at(0).at("wrong"), 0);
  const std::string help = heteroperf({"comm", "--help"}).out;
  EXPECT_NE(help.find("comm.check"), std::string::npos) << help;
  EXPECT_EQ(help.find("measure.steps"), std::string::npos) << help;
  EXPECT_NE(heteroperf({"probe", "--help"}).out.find("comm.timeout_s"), std::string::npos);
  EXPECT_EQ(heteroperf({"count", "--help"}).out.find("--set"), std::string::npos);
}

struct BadComm {
  Words words;
  const char* says;
};

TEST(Comm, BadInputIsNamed) {
  const BadComm cases[] = {
      {{"allreduc"}, "allreduce"},
      {{"allreduce", "-b", "8X"}, "-b 8X"},
      {{"allreduce", "-b", "1M", "-e", "1K"}, "-e 1K"},
      {{"allreduce", "-f", "1"}, "-f 1"},
      {{"allreduce", "--ranks", "0"}, "--ranks 0"},
      {{"allreduce", "--ranks", "2", "--clusters", "a,b,c"}, "3 labels"},
      {{"allreduce", "--algorithm", "rign"}, "ring"},
      {{"allreduce", "--algorithm", "ring:9-8"}, "9-8"},
      {{"broadcast", "--algorithm", "ring"}, "allreduce alone"},
      {{"allreduce", "--wire", "fp8"}, "fp8"},
      {{"allreduce", "--wire", "bf16", "--type", "f64"}, "float32"},
      {{"allreduce", "--type", "u16"}, "unknown type 'u16'"},
      {{"allreduce", "--set", "seed=1"}, "unknown configuration key 'seed'"},
      {{"allreduce", "--set", "comm.timout_s=3"}, "Did you mean 'comm.timeout_s'"},
      {{"allreduce", "--set", "comm.timeout_s"}, "expected path.to.key=value"},
      {{"allreduce", "--set", "comm.check=maybe"}, "comm.check = 'maybe'"},
      {{"allreduce", "--timeout", "soon"}, "--timeout soon"},
      {{"allreduce", "--host-path", "air"}, "--host-path air"},
      {{"allreduce", "--op", "product"}, "product"},
      {{"broadcast", "--ranks", "2", "--root", "2"}, "--root 2"},
      {{"sendrecv", "--ranks", "1"}, "two ranks"},
      {{"allreduce", "--transport", "smoke"}, "smoke"},
      {{"allreduce", "--pace", "/no/such.json"}, "/no/such.json"},
      {{"allreduce", "--ranks", "2", "-b", "64T", "-e", "64T"}, "GiB"},
      {{"allreduce", "-o", "/no/such/folder/x.json"}, "/no/such/folder"},
  };
  for (const BadComm& one : cases) {
    Words words = one.words;
    words.insert(words.begin(), "comm");
    const CommandResult result = heteroperf(words);
    EXPECT_EQ(result.exit_code, 2) << one.says << "\n" << result.out << result.err;
    EXPECT_NE(result.err.find(one.says), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "") << result.out;
  }
}

TEST(Comm, AllProblemsAtOnce) {
  const CommandResult result =
      heteroperf({"comm", "allreduce", "--wire", "fp8", "--op", "product", "-b", "8X"});
  for (const char* part : {"fp8", "product", "8X"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
}

// ---- probe

TEST(Probe, WritesAClusterFileThatPaces) {
  const ScratchFolder folder;
  const CommandResult result =
      heteroperf({"probe", "--ranks", "2", "--links-only", "-o", "c.json"}, folder.path());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::ifstream file(folder / "c.json");
  const Json cluster = Json::parse(file);
  EXPECT_EQ(cluster.at("_format"), "heteroperf-cluster");
  const CommandResult paced =
      heteroperf({"comm", "allreduce", "--ranks", "2", "-b", "1K", "-e", "1K", "--iters", "2",
                  "--check", "--pace", "c.json", "--json"},
                 folder.path());
  ASSERT_EQ(paced.exit_code, 0) << paced.err;
  EXPECT_EQ(Json::parse(paced.out).at("emulated"), true);
}

TEST(Probe, BadInputIsNamed) {
  EXPECT_EQ(heteroperf({"probe", "--ranks", "0"}).exit_code, 2);
  EXPECT_EQ(heteroperf({"probe", "--gap", "1"}).exit_code, 2);
  EXPECT_EQ(heteroperf({"probe", "-o", "/no/such/folder/x.json"}).exit_code, 2);
}

// ---- under MPI, with faults

#ifdef HETEROPERF_MPIRUN

/// A long sweep of two ranks whose rows come one by one.
Words long_sweep() {
  return {heteroperf_path(),
          "comm",
          "allreduce",
          "--transport",
          "mpi",
          "--ranks",
          "2",
          "-b",
          "1K",
          "-e",
          "256M",
          "-f",
          "1.01",
          "--timeout",
          "4",
          "--json",
          "-o",
          "rows.json"};
}

/// Discarded while it is being written.
Json document_in(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

std::size_t rows_in(const std::string& path) {
  const Json json = document_in(path);
  return json.is_discarded() ? 0 : json.at("results").size();
}

/// The process of that rank below `root`; -1 when there is none.
pid_t rank_process(pid_t root, const std::string& rank) {
  for (const pid_t pid : descendants(root)) {
    if (environment_of(pid, "OMPI_COMM_WORLD_RANK") == rank) return pid;
  }
  return -1;
}

struct Fault {
  const char* name;
  int signal;
  int exit_code;
};

TEST(CommUnderMpi, ALostRankEndsTheSweepAndRowsAreKept) {
  for (const Fault& fault : {Fault{"kill", SIGKILL, 6}, Fault{"stop", SIGSTOP, 7}}) {
    const ScratchFolder folder;
    Command command(long_sweep(), folder.path());
    ASSERT_TRUE(command.wait_until([&] { return rows_in(folder / "rows.json") >= 3; }));
    const pid_t victim = rank_process(command.pid(), "1");
    ASSERT_GT(victim, 0);
    kill(victim, fault.signal);
    const CommandResult result = command.finish();
    EXPECT_EQ(result.exit_code, fault.exit_code) << fault.name << result.err;
    EXPECT_TRUE(Json::accept(result.out)) << fault.name << result.out;
    EXPECT_GE(rows_in(folder / "rows.json"), 3U) << fault.name;
    EXPECT_NE(result.err.find("rank 1"), std::string::npos) << result.err;
    EXPECT_EQ(environment_of(victim, "OMPI_COMM_WORLD_RANK"), "") << "an orphan is left";
  }
}

TEST(CommUnderMpi, WithoutRankZeroTheNextOneTellsWhatWasMeasured) {
  const ScratchFolder folder;
  Command command(long_sweep(), folder.path());
  ASSERT_TRUE(command.wait_until([&] { return rows_in(folder / "rows.json") >= 3; }));
  EXPECT_EQ(document_in(folder / "rows.json").at("status"), "partial");
  kill(rank_process(command.pid(), "0"), SIGKILL);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 6) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("status"), "failed");
  EXPECT_EQ(json.at("failed_ranks"), Json::parse("[0]"));
  EXPECT_GE(json.at("results").size(), 3U);
  EXPECT_EQ(document_in(folder / "rows.json").at("status"), "failed");
}

TEST(CommUnderMpi, AFileThatCannotBeWrittenIsOneDocument) {
  const Json json = comm({"allreduce", "-e", "64", "--ranks", "2", "--transport", "mpi", "--iters",
                          "2", "--out", "/dev/full"},
                         6);
  EXPECT_EQ(json.at("error").at("details").at(0).at("problem"), "cannot write /dev/full");
}

/// In the kernel's words; empty where it does not tell.
std::string waits_of(pid_t process) {
  std::string all;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::string one;
    std::ifstream file(task.path() / "wchan");
    std::getline(file, one);
    all += one + " ";
  }
  return all;
}

/// Rank 0 waits for a reader of its file, which is a pipe, after the last call of all ranks. It
/// shows its document and then misses the other one.
TEST(CommUnderMpi, ARankLostAtTheEndIsNoSecondDocument) {
  const ScratchFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Command command(
      {heteroperf_path(), "comm", "allreduce", "-b", "8", "-e", "8", "--ranks", "2", "--transport",
       "mpi", "--iters", "2", "--timeout", "3", "--json", "--out", "pipe"},
      folder.path());
  const auto in_pipe = [&] {
    const pid_t first = rank_process(command.pid(), "0");
    return first > 0 && waits_of(first).find("wait_for_partner") != std::string::npos;
  };
  if (!command.wait_until(in_pipe, std::chrono::seconds(30))) {
    GTEST_SKIP() << "the kernel does not tell what processes wait for";
  }
  kill(rank_process(command.pid(), "1"), SIGSTOP);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  const CommandResult result = command.finish();
  close(reader);
  EXPECT_EQ(result.exit_code, 7) << result.err;
  ASSERT_TRUE(Json::accept(result.out)) << result.out;
  EXPECT_EQ(Json::parse(result.out).at("status"), "complete");
  EXPECT_NE(result.err.find("rank 1 stopped answering"), std::string::npos) << result.err;
}

TEST(CommUnderMpi, RanksStartedWithOtherArgumentsAreNamed) {
  Words words{HETEROPERF_MPIRUN, "--oversubscribe"};
  for (const char* collective : {"allreduce", "broadcast"}) {
    const Words part{"-n", "1", heteroperf_path(), "comm", collective, "-b", "8",
                     "-e", "8", "--iters",         "2",    ":"};
    words.insert(words.end(), part.begin(), part.end());
  }
  words.pop_back();
  Command command(words, ".", {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  const CommandResult result = command.finish();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("rank 1 was started with 'comm broadcast"), std::string::npos)
      << result.err;
}

TEST(CommUnderMpi, ALateRankIsWaitedForAsLongAsAsked) {
  Words words{HETEROPERF_MPIRUN,
              "--oversubscribe",
              "-n",
              "1",
              heteroperf_path(),
              "comm",
              "allreduce",
              "--join-timeout",
              "2",
              ":",
              "-n",
              "1",
              "sleep",
              "20"};
  Command command(words, ".", {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  const CommandResult result = command.finish();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_LT(result.seconds, 15);
  EXPECT_NE(result.err.find("waited 2 s for the other ranks"), std::string::npos) << result.err;
}

TEST(CommUnderMpi, SweepsChecksAndFindsClusters) {
  const Json json = comm({"allreduce", "--transport", "mpi", "--ranks", "3", "--clusters", "a,b,a",
                          "-b", "1K", "-e", "1M", "-f", "32", "--iters", "3", "--check"});
  EXPECT_EQ(json.at("transport"), "mpi");
  EXPECT_EQ(json.at("clusters"), Json::parse("[[0,2],[1]]"));
  for (const Json& result : json.at("results")) EXPECT_EQ(result.at("wrong"), 0);
}

TEST(CommUnderMpi, AnInterruptKeepsWhatWasMeasured) {
  const ScratchFolder folder;
  Command command(long_sweep(), folder.path());
  ASSERT_TRUE(command.wait_until([&] { return rows_in(folder / "rows.json") >= 3; }));
  kill(command.pid(), SIGINT);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_TRUE(Json::accept(result.out)) << result.out;
  EXPECT_GE(rows_in(folder / "rows.json"), 3U);
}

#endif

}  // namespace
}  // namespace heteroperf::testing
