#include "results/record/rule_watch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

TEST(RuleWatch, TellsOfEachRuleOnceAndAtOnce) {
  SampleRun run = fixed_run();
  run.last<ObservedEvent>().executed += Ops(1);
  run.last<ChecksumEvent>().fingerprint = "other";
  RuleWatch watch;
  std::set<std::string> told;
  for (const JournalLine& line : run.lines) {
    watch.see(line.t_ns, line.event);
    for (const RuleNews& news : watch.judge()) EXPECT_TRUE(told.insert(news.reason.rule).second);
    const auto* seen = std::get_if<ObservedEvent>(&line.event);
    if (seen != nullptr && seen->executed != seen->strict + seen->recompute) {
      EXPECT_TRUE(told.contains("executed_operations"));
    }
  }
  EXPECT_EQ(told, (std::set<std::string>{"executed_operations", "checksums"}));
}

TEST(RuleWatch, SeesAClockThatGoesBackBetweenTwoLooks) {
  SampleRun run = fixed_run();
  run.last<StepEvent>().t_start_ns -= 1;
  for (const bool look_in_between : {false, true}) {
    RuleWatch watch;
    std::vector<Reason> told;
    for (const JournalLine& line : run.lines) {
      watch.see(line.t_ns, line.event);
      if (!look_in_between) continue;
      for (RuleNews& news : watch.judge()) told.push_back(std::move(news.reason));
    }
    for (RuleNews& news : watch.judge()) told.push_back(std::move(news.reason));
    ASSERT_EQ(told.size(), 1u) << look_in_between;
    EXPECT_EQ(told[0].rule, "clock");
  }
}

std::vector<std::string> rules_of(const std::vector<RuleNews>& news, bool of_setup) {
  std::vector<std::string> rules;
  for (const RuleNews& one : news) {
    EXPECT_EQ(one.of_setup, of_setup) << one.reason.rule;
    rules.push_back(one.reason.rule);
  }
  return rules;
}
using Rules = std::vector<std::string>;

StepEvent first_step() {
  StepEvent step;
  step.t_start_ns = 1;
  step.t_end_ns = 2;
  return step;
}

TEST(RuleWatch, TellsOfLoadAndHeatSoFar) {
  RuleWatch watch;
  watch.see(1, first_step());
  watch.see(1, HostLoadEvent{10, 4, 0.4, {}, {}, {}, "a", 0});
  watch.see(1, HostLoadEvent{10, 4, 0.3, {}, {}, {}, "b", 4});
  EXPECT_TRUE(watch.judge().empty());
  watch.see(2, HostLoadEvent{20, 4, 0.41, {}, {}, {}, "b", 4});
  const std::vector<RuleNews> news = watch.judge();
  EXPECT_EQ(rules_of(news, false), Rules{"other_load"});
  EXPECT_EQ(news.at(0).reason.actual, "b: 10.2 % of 4 CPUs");
  watch.see(3, HostLoadEvent{30, 4, 0.41, {}, {}, {}, "b", 4});
  watch.see(3, GpuSlowdownEvent{"a", "0000:1b:00.0", 0, 10, 0.11, {}});
  EXPECT_EQ(rules_of(watch.judge(), false), Rules{"throttled"});
}

TEST(RuleWatch, LoadOfTheSetUpIsNotThatOfTheSteps) {
  const HostLoadEvent loaded{10, 4, 2, {}, {}, {}, "a", 0};
  RuleWatch watch;
  watch.see(1, loaded);
  EXPECT_EQ(rules_of(watch.judge(), true), Rules{"other_load"});
  EXPECT_TRUE(watch.judge().empty());
  watch.see(2, first_step());
  EXPECT_TRUE(watch.judge().empty());
  watch.see(3, loaded);
  EXPECT_EQ(rules_of(watch.judge(), false), Rules{"other_load"});
}

TEST(RuleWatch, SaysNothingOfAGoodRun) {
  for (const SampleRun& run : {fixed_run(), planned_run(), search_run()}) {
    RuleWatch watch;
    for (const JournalLine& line : run.lines) {
      watch.see(line.t_ns, line.event);
      EXPECT_TRUE(watch.judge().empty());
    }
  }
}

TEST(RuleWatch, JudgesOnTheThreadOfTheJournalThatItWatches) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  RuleWatch watch;
  std::vector<std::uint64_t> seen;
  std::atomic<bool> warned{false};
  std::unique_ptr<JournalWriter> writer;
  std::mutex made;
  JournalOptions options{.flush_interval_s = 0.001};
  options.on_line = [&](std::int64_t t_ns, const Event& event) {
    if (const auto* one = std::get_if<StepEvent>(&event)) seen.push_back(one->n);
    watch.see(t_ns, event);
  };
  options.on_interval = [&] {
    const std::lock_guard lock(made);
    for (const RuleNews& news : watch.judge()) {
      writer->append(WarningEvent{news.reason.actual, news.reason.rule});
      warned = true;
    }
  };
  {
    const std::lock_guard lock(made);
    writer = std::make_unique<JournalWriter>(path, std::move(options));
  }
  writer->append(StartEvent{});
  for (std::uint64_t n = 0; !warned; ++n) {  // ctest's limit ends it
    StepEvent step;
    step.n = n;
    step.t_start_ns = static_cast<std::int64_t>(n);
    step.t_end_ns = step.t_start_ns + 1;
    writer->append(step);
    ObservedEvent bad;
    bad.executed = Ops(1);
    if (n == 100) writer->append(bad);
  }
  writer.reset();
  const Journal journal = read_journal(path);
  std::vector<std::uint64_t> written;
  for (const StepEvent* one : journal.all<StepEvent>()) written.push_back(one->n);
  EXPECT_EQ(written, seen);
  ASSERT_EQ(journal.all<WarningEvent>().size(), 1u);
  EXPECT_EQ(journal.first<WarningEvent>()->rule, "executed_operations");
}

}  // namespace
}  // namespace heteroperf
