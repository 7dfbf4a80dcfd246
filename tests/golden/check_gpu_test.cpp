// The check for machines with a GPU, rehearsed on the CPU: the same script, parts and document.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/golden/command.hpp"
#include "tests/golden/python_reader.hpp"

namespace heteroperf::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// Runs the script to its end, with `program` in place of heteroperf.
CommandResult check_gpu(const Words& arguments, const ScratchFolder& folder,
                        const std::string& python, const std::string& program) {
  const Words script{HETEROPERF_CHECKOUT "/scripts/check_gpu.sh", "-o", folder / "check.json"};
  return Command(joined(script, arguments), folder.path(),
                 {"HETEROPERF=" + program, "PEER_PYTHON=" + python})
      .finish(std::chrono::seconds(580));
}

Json document_in(const ScratchFolder& folder) {
  std::ifstream file(folder / "check.json");
  return Json::parse(file);
}

/// The names of a JSON object's keys that are missing.
Words missing(const Json& json, const Words& keys) {
  Words result;
  for (const std::string& key : keys) {
    if (!json.contains(key)) result.push_back(key);
  }
  return result;
}

/// Each part, the list that its numbers stand in, and what a row of that list says.
struct PartForm {
  std::string name, list;
  Words keys;
};

void expect_form(const Json& part, const PartForm& form) {
  EXPECT_EQ(part.at("name"), form.name);
  EXPECT_EQ(part.at("ok"), true) << part.value("reason", "");
  EXPECT_GT(part.at("seconds"), 0);
  if (form.list.empty()) {
    EXPECT_EQ(missing(part, form.keys), Words{}) << form.name;
    return;
  }
  ASSERT_TRUE(part.contains(form.list)) << part.dump();
  EXPECT_FALSE(part.at(form.list).empty()) << form.name;
  for (const Json& row : part.at(form.list)) {
    EXPECT_EQ(missing(row, form.keys), Words{}) << form.name << ' ' << row.dump();
  }
}

void rehearse(const std::string& python, const std::vector<PartForm>& forms) {
  const ScratchFolder folder;
  Words arguments{"--device", "cpu"};
  for (const PartForm& form : forms) {
    arguments.push_back("--part");
    arguments.push_back(form.name);
  }
  const CommandResult result = check_gpu(arguments, folder, python, heteroperf_path());
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const Json document = document_in(folder);
  EXPECT_EQ(document.at("_format"), "heteroperf-gpu-check");
  EXPECT_EQ(document.at("_version"), 1);
  EXPECT_EQ(document.at("ok"), true);
  EXPECT_EQ(document.at("rehearsal"), true);
  EXPECT_EQ(document.at("budget_s"), 480);
  EXPECT_EQ(missing(document.at("device"), {"name", "memory_bytes"}), Words{});
  EXPECT_EQ(missing(document.at("program"), {"version", "commit"}), Words{});
  ASSERT_EQ(document.at("parts").size(), forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) expect_form(document.at("parts")[i], forms[i]);
}

/// The long parts (conformance, losses, utilization, peers) run as these do, and take minutes:
/// `scripts/check_gpu.sh --device cpu` rehearses all of them.
TEST(CheckGpu, ShortPartsAreRehearsedOnTheCpu) {
  const auto python = python_with({});
  if (!python) GTEST_SKIP() << "no Python here";
  rehearse(*python, {{"mixed", "jobs", {"layout", "devices", "limit", "value"}},
                     {"memory", "workloads", {"planned_bytes", "measured_bytes", "ledger_bytes"}},
                     {"collectives", "results", {"collective", "bytes", "time_s", "wrong"}}});
}

TEST(CheckGpu, APartThatFailsOrHangsIsToldAndKeepsNoOther) {
  const auto python = python_with({});
  if (!python) GTEST_SKIP() << "no Python here";
  const ScratchFolder folder;
  const std::string program = folder.write("program",
                                           "#!/bin/sh\n"
                                           "case $1 in\n"
                                           "run) exec sleep 300 ;;\n"
                                           "comm) echo 'no such network' >&2; exit 6 ;;\n"
                                           "*) echo '{}' ;;\n"
                                           "esac\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const CommandResult result =
      check_gpu({"--device", "cpu", "--budget-s", "20", "--part", "host", "--part", "collectives"},
                folder, *python, program);
  EXPECT_EQ(result.exit_code, 9) << result.err;
  EXPECT_LT(result.seconds, 60);
  const Json document = document_in(folder);
  EXPECT_EQ(document.at("ok"), false);
  EXPECT_NE(document.at("parts")[0].at("reason").get<std::string>().find("not done in time"),
            std::string::npos);
  EXPECT_NE(document.at("parts")[1].at("reason").get<std::string>().find("no such network"),
            std::string::npos);
}

TEST(CheckGpu, WithoutAGpuNothingIsMeasuredAndNoDocumentIsLeft) {
  const auto python = python_with({});
  if (!python) GTEST_SKIP() << "no Python here";
  const ScratchFolder folder;
  const Json doctor = Json::parse(heteroperf({"doctor", "--json"}).out);
  if (doctor.at("backends").at("cuda").at("usable") == true) GTEST_SKIP() << "there is a GPU";
  const CommandResult result = check_gpu({}, folder, *python, heteroperf_path());
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("no GPU can be used ("), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "check.json"));
}

TEST(CheckGpu, WrongOptionsAreRefused) {
  const ScratchFolder folder;
  for (const Words& words : std::vector<Words>{{"--part", "nothing"},
                                               {"--device", "tpu"},
                                               {"--budget-s", "5"},
                                               {"--budget-s"},
                                               {"x"}}) {
    const CommandResult result = check_gpu(words, folder, "python3", heteroperf_path());
    EXPECT_EQ(result.exit_code, 2) << words.front() << ' ' << result.err;
  }
}

}  // namespace
}  // namespace heteroperf::testing
