#include "suite/search/search_service.hpp"
#include "metrics/base/clock.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "automl/trial_json.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// A service for one group, and a group that answers as it is told.
class SearchServiceTest : public ::testing::Test {
 protected:
  SearchServiceTest() {
    fs::create_directories(folder_);
    WorkloadRequest request;
    request.size = "w16";
    workload_ = make_automl_image(request, {});
    journal_ = std::make_unique<JournalWriter>((folder_ / "journal.jsonl").string());
    StartEvent start;
    start.run_id = "test";
    journal_->append(start);
  }
  ~SearchServiceTest() override {
    journal_.reset();
    fs::remove_all(folder_);
  }

  void start(int groups = 1) {
    service_ = std::make_unique<SearchService>(config_, workload_, groups, *journal_);
  }
  /// What a group hears that has done its warm-up.
  std::optional<std::int64_t> end_told_to(int group) {
    std::string answer;
    service_->answer(to_text({GroupId(group), std::nullopt, true}),
                     [&](std::string text) { answer = std::move(text); });
    return answer.empty() ? std::nullopt : std::optional<std::int64_t>(std::stoll(answer));
  }
  Assignment ask() {
    std::string answer;
    service_->answer(to_text({GroupId(0)}), [&](std::string text) { answer = std::move(text); });
    return message_from_json<Assignment>(nlohmann::ordered_json::parse(answer), "assignment");
  }
  void report(const Trial& trial, TrialReport::Health health, const std::string& reason) {
    TrialReport report;
    report.id = trial.id;
    report.health = health;
    report.reason = reason;
    if (health == TrialReport::Health::fine) report.steps = trial.steps;
    service_->answer(to_text({GroupId(0), report}), [](const std::string&) {});
  }

  fs::path folder_ = fs::temp_directory_path() / ("heteroperf-service-" + std::to_string(getpid()));
  RunConfig config_;
  Workload workload_;
  std::unique_ptr<JournalWriter> journal_;
  std::unique_ptr<SearchService> service_;
};

TEST_F(SearchServiceTest, OnlyFailuresEndTheSearchAsFailedWithTheLastReason) {
  start();
  int failed = 0;
  for (; failed < 1000; ++failed) {
    const Assignment assignment = ask();
    if (!assignment.trial) break;
    EXPECT_EQ(service_->end().kind, SearchEnd::Kind::ordinary);
    report(*assignment.trial, TrialReport::Health::failed, "no memory");
  }
  EXPECT_EQ(failed, 50);
  const SearchEnd end = service_->end();
  EXPECT_EQ(end.kind, SearchEnd::Kind::failed);
  EXPECT_NE(end.reason.find("no memory"), std::string::npos) << end.reason;
}

TEST_F(SearchServiceTest, AnEndBeforeItsTimeIsEarlyAndKeepsItsReason) {
  start();
  service_->close("nothing is left to try");
  EXPECT_FALSE(ask().trial);
  EXPECT_EQ(service_->end().kind, SearchEnd::Kind::early);
  EXPECT_EQ(service_->end().reason, "nothing is left to try");
}

TEST_F(SearchServiceTest, UsedUpStepsAreAnOrdinaryEnd) {
  config_.measure.steps = 1;
  start();
  const Assignment assignment = ask();
  ASSERT_TRUE(assignment.trial);
  report(*assignment.trial, TrialReport::Health::fine, "");
  EXPECT_FALSE(ask().trial);
  EXPECT_EQ(service_->end().kind, SearchEnd::Kind::ordinary);
}

TEST_F(SearchServiceTest, ALostGroupsTrialFailsAfterItsSteps) {
  start();
  const Assignment assignment = ask();
  ASSERT_TRUE(assignment.trial);
  service_->answer(to_text({GroupId(0), {}, false, {{"rank 0 broke \xff", 7}}}), {});
  EXPECT_FALSE(ask().trial);
  journal_->flush_now();
  const Journal journal = read_journal((folder_ / "journal.jsonl").string());
  const auto* trial = journal.last<TrialEvent>();
  ASSERT_NE(trial, nullptr);
  EXPECT_EQ(trial->state, TrialStatus::failed);
  EXPECT_EQ(trial->steps, 7u);
  EXPECT_EQ(trial->ops, ops_per_step(*assignment.trial, 1) * 7);
  EXPECT_EQ(trial->reason.rfind("rank 0 broke ", 0), 0u) << trial->reason;
}

TEST_F(SearchServiceTest, TheMastersNumbersReachTheJournal) {
  start();
  const Assignment assignment = ask();
  ASSERT_TRUE(assignment.trial);
  report(*assignment.trial, TrialReport::Health::fine, "");
  service_->record_statistics();
  journal_->flush_now();
  const Journal journal = read_journal((folder_ / "journal.jsonl").string());
  const auto* search = journal.last<SearchEvent>();
  ASSERT_NE(search, nullptr);
  EXPECT_EQ(search->proposals, 1u);
  EXPECT_EQ(search->answers, 2u);
  EXPECT_EQ(search->groups_lost, 0u);
  EXPECT_GT(search->proposal_p50_s, 0);
  EXPECT_LE(search->proposal_p50_s, search->proposal_p99_s);
  EXPECT_GE(search->idle_s, search->proposal_p50_s);  // the group waited for its proposal
}

TEST_F(SearchServiceTest, AGroupThatLeftIsNotLost) {
  start();
  service_->answer(to_text({GroupId(0), {}, false, {{"", 0}}}), {});
  EXPECT_FALSE(ask().trial);
  service_->record_statistics();
  journal_->flush_now();
  const Journal journal = read_journal((folder_ / "journal.jsonl").string());
  EXPECT_EQ(journal.last<SearchEvent>()->groups_lost, 0u);
}

TEST_F(SearchServiceTest, AllGroupsEndADurationAfterTheLastOneMeasures) {
  config_.measure.duration_s = 100;
  start(3);
  EXPECT_FALSE(end_told_to(0));
  EXPECT_FALSE(end_told_to(2));
  EXPECT_FALSE(end_told_to(2)) << "asked again, it is still one group";
  const std::int64_t before_ns = now_ns();
  const auto end_ns = end_told_to(1);
  ASSERT_TRUE(end_ns);
  EXPECT_GE(*end_ns, before_ns + 100'000'000'000);
  EXPECT_LE(*end_ns, now_ns() + 100'000'000'000);
  EXPECT_EQ(end_told_to(0), end_ns);
}

TEST_F(SearchServiceTest, WhoTrainsNoMoreKeepsNobodyFromEnding) {
  start(3);
  EXPECT_FALSE(end_told_to(1));
  service_->answer(to_text({GroupId(2), {}, false, {{"", 0}}}), {});
  EXPECT_FALSE(end_told_to(1));
  service_->close("nothing is left to try");
  EXPECT_FALSE(ask().trial);
  EXPECT_TRUE(end_told_to(1));
}

TEST_F(SearchServiceTest, AnInterruptedEvaluationIsATruncatedTrial) {
  start();
  const Assignment assignment = ask();
  ASSERT_TRUE(assignment.trial);
  report(*assignment.trial, TrialReport::Health::truncated, "interrupted");
  journal_->flush_now();
  const Journal journal = read_journal((folder_ / "journal.jsonl").string());
  EXPECT_EQ(journal.last<TrialEvent>()->state, TrialStatus::truncated);
}

}  // namespace
}  // namespace heteroperf
