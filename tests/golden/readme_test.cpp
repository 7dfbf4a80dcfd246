// Every command of README's code blocks, in order, from an empty folder, as a newcomer pastes them.
// Only the lengths of runs (--steps, --duration, --tune, --repeat, evaluation, measured peak) and
// the names of places outside that folder are others here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr auto longest_command = std::chrono::seconds(300);
constexpr const char* short_duration = "HETEROPERF_DURATION=0.2";
/// The same of a gate in lockstep, whose pairs take the place of --duration, of collectives, which
/// four ranks on two cores make slowly, and of a probe's operations.
constexpr const char* short_repeats[] = {
    "HETEROPERF_GATE_PAIR_SECONDS=0.2", "HETEROPERF_GATE_MAX_BLOCKS=6", "HETEROPERF_COMM_ITERS=3",
    "HETEROPERF_COMM_WARMUP=1", "HETEROPERF_PROBE_TIME_LIMIT=5"};

struct Replacement {
  const char* pattern;
  std::string with;
};
const Replacement replacements[] = {
    {"--duration [0-9]+", "--duration 0.2"},
    {"--steps [0-9]+", "--steps 4"},
    {"--tune [0-9]+", "--tune 35"},
    {"--repeat [0-9]+", "--repeat 2"},
    {"(heteroperf|old|new) run\\b",
     "$1 run --set measure.peak_s=0.2 --set measure.evaluation_samples=64"},
    {"path/to/(before|after)/heteroperf", heteroperf_path()},
    {"path/to/HeteroPerf", HETEROPERF_CHECKOUT},
};

/// Lines that set a machine up.
const Lines set_up{"./scripts/quickstart.sh", "./scripts/test.sh"};

/// Ends that are verdicts about the machine or about runs as short as these, not dead ends.
struct Verdict {
  const char* command;
  int exit_code;
  const char* said;  ///< on stdout or stderr, so that no other reason passes
};
const Verdict verdicts[] = {
    // A disturbed measurement; of runs, and of what is asked of such a run.
    {"heteroperf ", 8, "(late|above_peak)( \\(invalid\\)|: at most)"},
    {" gate ", 4, "inconclusive"},
    {" gate --base main", 3, "regression"},
    {" gate --base-cmd", 5, "the machine is busy"},
    {" rank ", 8, ""},  // its words are in the file that it writes
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The indented blocks of a document, without the indentation.
std::vector<Lines> code_blocks(const std::string& text) {
  std::vector<Lines> blocks;
  std::istringstream stream(text);
  bool inside = false;
  for (std::string line; std::getline(stream, line);) {
    const bool code = line.starts_with("    ");
    if (code && !inside) blocks.emplace_back();
    if (code) blocks.back().push_back(line.substr(4));
    inside = code;
  }
  return blocks;
}

/// All lines of a block; where some begin with "$ ", these, the others are what is printed.
Lines commands_of(const Lines& block) {
  Lines marked;
  for (const std::string& line : block) {
    if (line.starts_with("$ ")) marked.push_back(line.substr(2));
  }
  return marked.empty() ? block : marked;
}

Lines commands_of_readme() {
  Lines all;
  for (const Lines& block : code_blocks(bytes_of(HETEROPERF_CHECKOUT "/README.md"))) {
    for (const std::string& line : commands_of(block)) all.push_back(line);
  }
  return all;
}

bool has_program(const std::string& name) {
  return Command({"/bin/bash", "-c", "command -v " + name}, ".").finish().exit_code == 0;
}

/// Why a command is not run here; empty: it is.
std::string why_left_out(const std::string& command) {
  const std::string program = command.substr(0, command.find(' '));
  if (std::find(set_up.begin(), set_up.end(), program) != set_up.end()) return "sets a machine up";
  std::smatch match;
  const bool launched = std::regex_search(command, match, std::regex("^mpirun -n ([0-9]+)"));
  if (launched && std::stoul(match[1]) > std::thread::hardware_concurrency()) {
    return "needs " + match[1].str() + " cores";
  }
  if (program != "heteroperf" && !has_program(program)) return "there is no " + program;
  if (command.find("--transport mpi") != std::string::npos && !has_program("mpirun")) {
    return "there is no mpirun";
  }
#ifndef HETEROPERF_CAN_MPI
  if (command.find("mpi") != std::string::npos) return "built without MPI";
#endif
  return {};
}

class Readme : public ::testing::Test {
 protected:
  /// As a shell runs it, with the program in its PATH.
  CommandResult run(std::string command) const {
    for (const Replacement& one : replacements) {
      command = std::regex_replace(command, std::regex(one.pattern), one.with);
    }
    std::vector<std::string> environment{
        "PATH=" + fs::path(heteroperf_path()).parent_path().string() + ":" + std::getenv("PATH")};
    const bool says_length = std::regex_search(command, std::regex("--(steps|duration|tune) "));
    if (!says_length) environment.push_back(short_duration);
    environment.insert(environment.end(), std::begin(short_repeats), std::end(short_repeats));
    return Command({"/bin/bash", "-c", command}, folder_.path(), environment)
        .finish(longest_command);
  }

  static bool is_fine(const std::string& command, const CommandResult& result) {
    if (result.exit_code == 0) return true;
    return std::any_of(std::begin(verdicts), std::end(verdicts), [&](const Verdict& one) {
      return result.exit_code == one.exit_code && command.find(one.command) != std::string::npos &&
             std::regex_search(result.out + result.err, std::regex(one.said));
    });
  }

  void expect_fine(const std::string& command) const {
    const CommandResult result = run(command);
    std::printf("%6.1f s  %s\n", result.seconds, command.c_str());
    std::fflush(stdout);
    EXPECT_EQ(result.err.find("in the environment changes nothing"), std::string::npos)
        << result.err;
    EXPECT_TRUE(is_fine(command, result)) << command << "\nended with " << result.exit_code << "\n"
                                          << result.out << result.err;
  }

  ScratchFolder folder_;
};

TEST_F(Readme, EveryCommandWorksInOrderFromAnEmptyFolder) {
  const Lines commands = commands_of_readme();
  ASSERT_GE(commands.size(), 40u) << "are the blocks still indented by four?";
  std::size_t left_out = 0;
  for (const std::string& command : commands) {
    const std::string why = why_left_out(command);
    if (why.empty()) {
      expect_fine(command);
    } else {
      ++left_out;
      std::printf("not run  %s (%s)\n", command.c_str(), why.c_str());
    }
  }
  EXPECT_LE(left_out, 6u);
}

/// "workload" of "workload     llm micro"; empty for a line that goes on.
std::string label_of(const std::string& line) {
  if (line.empty() || line[0] == ' ') return {};
  return line.substr(0, line.find("  "));
}

TEST_F(Readme, TheSampleOutputHasTheLinesOfAQuickRun) {
  Lines sample;
  for (const Lines& block : code_blocks(bytes_of(HETEROPERF_CHECKOUT "/README.md"))) {
    if (block.front() == "$ heteroperf run llm --quick") sample = block;
  }
  ASSERT_FALSE(sample.empty());
  const CommandResult quick = run("heteroperf run llm --quick --size nano --duration 1");
  ASSERT_TRUE(is_fine(" run ", quick)) << quick.err;
  Lines labels{"", "warning"};  // a busy machine's
  for (const std::string& line : sample) labels.push_back(label_of(line));
  std::istringstream printed(quick.out);
  for (std::string line; std::getline(printed, line);) {
    EXPECT_NE(std::find(labels.begin(), labels.end(), label_of(line)), labels.end()) << line;
  }
}

TEST_F(Readme, AQuickRunEndsWithThreeCommandsThatWork) {
  const CommandResult quick = run("heteroperf run llm --quick --size nano --out 'a quick run'");
  ASSERT_TRUE(is_fine(" run ", quick)) << quick.err;
  const std::size_t at = quick.out.find("\nnext ");
  ASSERT_NE(at, std::string::npos) << quick.out;
  std::istringstream next(quick.out.substr(at + 1));
  Lines commands;
  for (std::string line; std::getline(next, line);) commands.push_back(line.substr(13));
  ASSERT_EQ(commands.size(), 3u) << quick.out;
  for (const std::string& command : commands) expect_fine(command);
  EXPECT_EQ(commands[2],
            "heteroperf run llm --size nano --set measure.evaluation_samples=64"
            " --set measure.peak_s=0.2 --duration 300");
}

}  // namespace
}  // namespace heteroperf::testing
