// Every document that a verb answers with has a label and a unit for each of its keys. The verbs
// are run as the program runs them, with a reader of documents in place of standard output.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <sstream>

#include "results/text/document.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "suite/program/verb.hpp"
#include "suite/verbs/schedule_report.hpp"
#include "suite/verification/align_runs.hpp"
#include "tests/unit/results/stored_runs.hpp"

namespace heteroperf {
namespace {

using Keys = std::vector<std::string>;

/// The documents that a command line answers with.
std::vector<Document> documents_of(const std::string& line) {
  CLI::App app{"heteroperf"};
  app.require_subcommand(1);
  const auto verbs = all_verbs();
  std::vector<Document> documents;
  GlobalOptions options;
  options.json = true;
  options.reader = [&](const Document& document) { documents.push_back(document); };
  for (const auto& verb : verbs) {
    verb->declare(*app.add_subcommand(verb->facts.name, verb->facts.summary));
  }
  app.parse(line);
  const std::string name = app.get_subcommands().front()->get_name();
  for (const auto& verb : verbs) {
    if (verb->facts.name == name) verb->run(options);
  }
  return documents;
}

TEST(VerbDocuments, StateALabelAndAUnitForEveryKey) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "verb_documents";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string plan = (folder / "plan.json").string();
  const std::string run = store_run(folder, {}).string(), home = " --dir " + folder.string();
  for (const std::string& line :
       {"plan llm --size nano --cluster fast2_slow6 --time-limit 2 --compare homogeneous -o " +
            plan,
        std::string("doctor --fix-hints"),
        std::string("version"),
        std::string("list workloads"),
        std::string("list models"),
        std::string("list schedules"),
        std::string("list devices --details"),
        std::string("list datasets"),
        std::string("list rules --details"),
        std::string("help keys"),
        std::string("help exit-codes"),
        std::string("help environment"),
        std::string("help files"),
        std::string("help validity"),
        std::string("count resnet18 --convention all --per-layer"),
        std::string("count micro --batch 2"),
        std::string("schedule all --ranks 2 --micro-batches 4 --memory-limit 8"),
        "simulate " + plan,
        "baseline save main " + run + home,
        "baseline list" + home,
        "pack " + run + " -o " + (folder / "run.tar.gz").string()}) {
    const std::vector<Document> documents = documents_of(line);
    ASSERT_EQ(documents.size(), 1u) << line;
    EXPECT_EQ(unstated_keys(documents.front()), Keys()) << line;
  }
}

TEST(VerbDocuments, OfSchedulesStateEveryKey) {
  ScheduleRequest request;
  request.ranks = 2;
  request.micro_batches = 4;
  request.costs = uniform_costs(2, 1, 1, 1, 0);
  ScheduleResult result = evaluate_schedule(find_generator("zb-h1").make(request), {}, 8);
  result.search.emplace();
  EXPECT_EQ(unstated_keys(schedule_document(result)), Keys());
  EXPECT_EQ(unstated_keys(simulation_document(result, 0.1)), Keys());
}

TEST(VerbDocuments, OfAnAlignmentStateEveryKey) {
  Alignment alignment;
  alignment.steps.push_back({0, 1, 1, 0, 0});
  EXPECT_EQ(unstated_keys(alignment_document(alignment)), Keys());
  alignment.parameter_step = 4;
  alignment.parameters.push_back({"weight", 0.1});
  alignment.warnings.push_back("a remark");
  EXPECT_EQ(unstated_keys(alignment_document(alignment)), Keys());
  alignment.band = NoiseBand{5, {1e-7}};
  alignment.held_steps = 1;
  alignment.parted_step = 0;
  alignment.searched = true;
  alignment.located = {"emulated:chip",
                       {0, "head", LayerPass::forward, "product", 1e-3, 1e-7, 1e-8}};
  EXPECT_EQ(unstated_keys(alignment_document(alignment)), Keys());
}

}  // namespace
}  // namespace heteroperf
