// Journals of runs whose numbers somebody changed, with the hashes of the whole chain made again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "metrics/base/text_file.hpp"
#include "results/comparison/record_doubt.hpp"
#include "results/comparison/run_set.hpp"
#include "results/journal/journal.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/verify.hpp"
#include "results/text/sha256.hpp"
#include "tests/golden/command.hpp"
#include "tests/unit/results/field_table.hpp"

namespace heteroperf::testing {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using JournalLines = std::vector<OrderedJson>;

/// Fields that small runs on CPUs may lack: tests/unit/results forges them.
const std::set<std::string> elsewhere{"gpu_slowdown host",
                                      "trial parent",
                                      "baseline samples_per_s",
                                      "baseline loss_difference",
                                      "start adapt_every",
                                      "adapt n",
                                      "adapt threshold",
                                      "adapt measured_step_s",
                                      "adapt classes",
                                      "adapt deviation",
                                      "adapt gain",
                                      "adapt decision",
                                      "adapt summary",
                                      "device device",
                                      "device emulated"};

JournalLines lines_of(const std::string& text) {
  JournalLines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(OrderedJson::parse(line));
  return lines;
}

std::string chained(JournalLines lines) {
  std::string text, prev(no_previous_line);
  for (OrderedJson& line : lines) {
    line["prev"] = prev;
    const std::string one = line.dump();
    prev = sha256_hex(one);
    text += one + '\n';
  }
  return text;
}

OrderedJson changed(const std::string& field, OrderedJson value) {
  static const std::map<std::string, std::pair<const char*, const char*>> words{
      {"phase", {"measure", "setup"}},
      {"state", {"completed", "stopped"}},
      {"family", {"classifier", "language_model"}}};
  if (field == "quality" && value.is_string()) return value == "loss" ? "accuracy" : "loss";
  if (const auto found = words.find(field); found != words.end()) {
    const auto& [first, second] = found->second;
    return value == first ? second : first;
  }
  if (field == "graph") {
    value["nodes"].erase(value["nodes"].size() - 1);
  } else if (field == "hyper_parameters") {
    value["batch"] = value["batch"].get<int>() + 1;
  } else if (field == "devices") {
    value[0]["count"] = value[0]["count"].get<int>() + 1;
  } else if (field == "seeds") {
    value["run"] = value["run"].get<int>() + 1;
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else if (value.is_number_float()) {
    value = value.get<double>() * 1.5 + 0.125;
  } else if (value.is_number()) {
    value = value.get<std::int64_t>() + 1;
  } else if (value.is_array()) {
    value[0] = 2 * value[0].get<std::int64_t>() + 100;
  } else {
    const std::string text = value;
    const bool number = text.find_first_not_of("0123456789") == std::string::npos;
    value = text + (number ? "1" : "x");
  }
  return value;
}

/// Small runs that have, between them, almost every kind of line.
class Forged : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new ScratchFolder;
    const Words small{"--set", "measure.evaluation_samples=4", "-q", "--out"};
    run(joined({"run", "llm", "--size", "nano", "--steps", "10", "--cluster", "fast2_slow6",
                "--with-baselines", "--micro-batch", "1", "--set", "measure.peak_s=0.02", "--set",
                "checkpoint.every_steps=4"},
               small),
        "mixed");
    run(joined({"run", "llm", "--size", "nano", "--ranks", "2", "--pp", "2", "--micro-batch", "2",
                "--duration", "60", "--until", "50%", "--set", "measure.until_after_s=0.2", "--set",
                "measure.peak_s=0.02"},
               small),
        "until");
    run(joined({"run", "vlm", "--size", "nano", "--images", "2", "--ranks", "1", "--micro-batch",
                "4", "--steps", "3", "--set", "measure.peak_s=0.02"},
               small),
        "images");
    run({"run", "automl-image", "--size", "w16", "--ranks", "2", "--steps", "14", "--micro-batch",
         "2", "--set", "automl.first_rung_steps=2", "--set", "automl.evaluation_samples=8", "--set",
         "measure.peak_s=0.02", "-q", "--out"},
        "search");
  }
  static void TearDownTestSuite() {
    delete scratch_;
    scratch_ = nullptr;
  }

  static fs::path folder_of(const std::string& name) { return *scratch_ / name; }
  static fs::path journal_of(const std::string& name) {
    return RunFiles{folder_of(name)}.journal();
  }
  static const std::set<std::string>& names() { return names_; }

  static void write_journal(const std::string& name, const std::string& text) {
    std::ofstream(journal_of(name), std::ios::binary | std::ios::trunc) << text;
  }

  /// Names those of `verify`, and of whoever asks what a record is worth, that believe the run.
  static std::string who_believes(const std::string& name) {
    std::string believers;
    const Verification verification = verify(folder_of(name));
    if (verification.ok()) believers += "verify ";
    RunSet found = find_runs({folder_of(name)});
    for (RunDigest& digest : found.runs) {
      if (!hold_to_journal(digest)) believers += "rank ";
    }
    return believers;
  }

  /// As somebody does who wants the run believed. False where no record can be made of it at all.
  static bool forge(const std::string& name, const JournalLines& lines) {
    write_journal(name, chained(lines));
    try {
      recover(folder_of(name));
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

 private:
  static void run(Words words, const std::string& name) {
    words.push_back(name);
    const CommandResult result = heteroperf(words, scratch_->path());
    ASSERT_TRUE(fs::exists(RunFiles{folder_of(name)}.record())) << result.err;
    names_.insert(name);
  }

  inline static ScratchFolder* scratch_ = nullptr;
  inline static std::set<std::string> names_;
};

TEST_F(Forged, GenuineRunsAreBelieved) {
  ASSERT_EQ(names().size(), 4u);
  for (const std::string& name : names()) {
    for (const VerifyCheck& check : verify(folder_of(name)).checks) {
      EXPECT_TRUE(check.ok) << name << " " << check.name << ": expected " << check.expected
                            << ", found " << check.actual;
    }
    const JournalLines lines = lines_of(read_text_file(journal_of(name)));
    ASSERT_TRUE(forge(name, lines));  // the same lines, written by another hand
    EXPECT_EQ(who_believes(name), "verify rank ");
  }
}

TEST_F(Forged, EveryFieldThatIsRecomputedIsFoundChanged) {
  std::map<std::string, int> forged;
  for (const std::string& name : names()) {
    const std::string genuine = read_text_file(journal_of(name));
    const JournalLines lines = lines_of(genuine);
    for (const FieldRow& row : fields_in_readme()) {
      if (row.held != "recomputed") continue;
      const auto last = std::find_if(lines.rbegin(), lines.rend(), [&](const OrderedJson& line) {
        return line.at("kind") == row.line && line.contains(row.field);
      });
      if (last == lines.rend()) continue;
      JournalLines changed_lines = lines;
      OrderedJson& line = changed_lines[static_cast<std::size_t>(lines.rend() - last - 1)];
      line[row.field] = changed(row.field, line[row.field]);
      if (forge(name, changed_lines)) {
        EXPECT_EQ(who_believes(name), "")
            << name << " " << row.line << " " << row.field << " " << line[row.field];
      }
      ++forged[row.line + " " + row.field];
    }
    write_journal(name, genuine);
    recover(folder_of(name));
    EXPECT_EQ(who_believes(name), "verify rank ");
  }
  for (const FieldRow& row : fields_in_readme()) {
    const std::string field = row.line + " " + row.field;
    if (row.held != "recomputed" || elsewhere.contains(field)) continue;
    EXPECT_GT(forged[field], 0) << field << " is in none of the runs";
  }
}

/// Bytes at the borders of components are those of the plan, in every line that tells them. The
/// ranks of one component have unlike parts of its sequences.
TEST_F(Forged, BytesBetweenComponentsAreFoundChanged) {
  const std::string run = folder_of("components").string();
  const CommandResult trained = heteroperf({"run",
                                            "two-tower",
                                            "--size",
                                            "nano",
                                            "--layout",
                                            "vision=cp3@0-2",
                                            "--layout",
                                            "text=dp1@3",
                                            "--micro-batch",
                                            "4",
                                            "--steps",
                                            "4",
                                            "--set",
                                            "measure.warmup_steps=1",
                                            "--set",
                                            "measure.peak_s=0",
                                            "--set",
                                            "measure.evaluation_samples=64",
                                            "-q",
                                            "--out",
                                            run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const JournalLines lines = lines_of(read_text_file(journal_of("components")));
  const auto changed_lines = [&](const char* kind, auto&& change) {
    JournalLines result = lines;
    // Ranks' lines come in any order; rank 0 has the component that sends.
    const auto line = std::ranges::find_if(result, [&](const OrderedJson& each) {
      return each.at("kind") == kind && each.at("rank") == 0;
    });
    change(*line);
    return result;
  };
  const auto failed = [&] {
    std::set<std::string> names;
    const CommandResult verified = heteroperf({"verify", run, "--json"});
    const OrderedJson document = OrderedJson::parse(verified.out);
    for (const OrderedJson& check : document.at("checks")) {
      if (check.at("ok") == false) names.insert(check.at("name"));
    }
    EXPECT_EQ(verified.exit_code, names.empty() ? 0 : 9);
    return names;
  };
  EXPECT_TRUE(failed().empty());
  const auto add = [](OrderedJson& value, std::int64_t more) {
    value = value.get<std::int64_t>() + more;
  };
  ASSERT_TRUE(forge("components", changed_lines("rank_time", [&](OrderedJson& line) {
                      add(line["components"][0]["border_bytes"], -4);
                    })));
  EXPECT_EQ(failed(), std::set<std::string>{"components"});
  ASSERT_TRUE(forge("components", changed_lines("rank_time", [&](OrderedJson& line) {
                      line["components"][0]["strict"] = "1";
                    })));
  EXPECT_EQ(failed(), std::set<std::string>{"components"});
  ASSERT_TRUE(forge("components", changed_lines("rank_time", [&](OrderedJson& line) {
                      line.erase("components");
                    })));
  EXPECT_EQ(failed(), std::set<std::string>{"components"});
  // Other bytes that all lines agree on are not those of the plan.
  JournalLines alike = changed_lines(
      "plan", [&](OrderedJson& line) { add(line["borders"][0]["planned_bytes"], 8); });
  std::int64_t steps = 0;
  for (OrderedJson& line : alike) {
    if (line.at("kind") != "rank_time" || steps > 0) continue;
    steps = line.at("steps");
    add(line["components"][0]["border_bytes"], 8 * steps);
  }
  ASSERT_TRUE(forge("components", alike));
  EXPECT_EQ(failed(), std::set<std::string>{"borders"});
}

/// Each other value that this line could have had in a field that has few.
JournalLines other_values(const OrderedJson& line, const JournalLines& lines) {
  JournalLines others;
  const auto add = [&](const char* field, const OrderedJson& value) {
    if (line.at(field) == value) return;
    others.push_back(line);
    others.back()[field] = value;
  };
  const std::string kind = line.at("kind");
  if (kind == "phase") {
    for (const char* phase : {"setup", "warmup", "measure", "evaluate", "finish"}) {
      add("phase", phase);
    }
  }
  for (const OrderedJson& other : lines) {
    const bool groups = other.at("kind") == "phase" && other.value("phase", "") == "warmup";
    if (groups && other.contains("group") && (kind == "step" || kind == "phase")) {
      if (line.contains("group")) add("group", other.at("group"));
    }
    const bool starts = other.at("kind") == "trial" && other.at("state") == "running";
    if (starts && line.value("final", false) && line.contains("trial")) {
      add("trial", other.at("id"));
    }
  }
  return others;
}

TEST_F(Forged, NoOtherPhaseOrGroupOrBestTrialIsBelieved) {
  std::map<std::string, int> forged;
  for (const std::string& name : names()) {
    const std::string genuine = read_text_file(journal_of(name));
    const JournalLines lines = lines_of(genuine);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const OrderedJson& other : other_values(lines[i], lines)) {
        JournalLines changed_lines = lines;
        changed_lines[i] = other;
        if (forge(name, changed_lines)) {
          EXPECT_EQ(who_believes(name), "") << name << " line " << i + 1 << " " << other;
        }
        ++forged[other.at("kind")];
      }
    }
    write_journal(name, genuine);
    recover(folder_of(name));
    EXPECT_EQ(who_believes(name), "verify rank ");
  }
  for (const char* kind : {"phase", "step", "eval"}) EXPECT_GT(forged[kind], 0) << kind;
}

TEST_F(Forged, NoChangedByteIsBelieved) {
  constexpr int changes = 400;
  const std::string name = "until";
  const std::string genuine = read_text_file(journal_of(name));
  std::uint64_t state = 1;
  const auto draw = [&](std::uint64_t below) {  // Knuth's MMIX generator
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33) % below;
  };
  for (int i = 0; i < changes; ++i) {
    std::string bytes = genuine;
    char& byte = bytes[draw(bytes.size())];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U + draw(255)));
    write_journal(name, bytes);
    ASSERT_EQ(who_believes(name), "") << "change " << i;
  }
  write_journal(name, genuine);
  EXPECT_EQ(who_believes(name), "verify rank ");
}

}  // namespace
}  // namespace heteroperf::testing
