#include "results/journal/journal.hpp"
#include "metrics/base/clock.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "metrics/base/random.hpp"
#include "results/record/run_folder.hpp"
#include "results/text/sha256.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

std::string message_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

StepEvent step(std::uint64_t n) {
  StepEvent event;
  event.n = n;
  event.samples = 1;
  event.t_end_ns = 1;
  return event;
}

TEST(EventJson, RoundTripsEveryKind) {
  SampleRun run = search_run();
  for (const SampleRun& other : {fixed_run(), planned_run()}) {
    run.lines.insert(run.lines.end(), other.lines.begin(), other.lines.end());
  }
  run.lines.push_back({1, WarningEvent{"text with \"quotes\"", "duration"}});
  run.lines.push_back({1, CheckpointEvent{120, 4096, 0.25}});
  AdaptEvent look;
  look.n = 120;
  look.decision = AdaptDecision::new_plan;
  look.threshold = 0.05;
  look.planned_step_s = look.measured_step_s = 0.25;
  look.deviation = 0.5;
  look.classes = {{"fast", 1, 0.125, 0.1875}};
  look.ranks = {{0, 0.125, 0.1875}};
  look.search_s = 0.5;
  look.candidates = 12;
  look.kept_step_s = 0.375;
  look.new_step_s = look.gain = 0.25;
  look.reason = "a reason";
  look.plan = {"{}"};
  look.summary = "pp 1";
  look.move_s = 0.125;
  look.moved_bytes = 4096;
  run.lines.push_back({1, look});
  run.lines.push_back({1, DeviceEvent{2, "emulated:x", "fastest", true, "bf16", 3, {"a*"}}});
  run.lines.push_back({1, SubstitutionEvent{2, "layer_norm", 3, 4096, 0.25, 2.5}});
  run.lines.push_back({1, UntilEvent{0.01, 40, 10, 5, 0.05, 3}});
  run.lines.push_back({1, LookEvent{1, 20'000'000'000, false}});
  run.lines.push_back({1, RankStepsEvent{3, 0, 2, 5, 2, {4'000'000'000, 5, 6}}});
  run.lines.push_back(
      {1, PeakEvent{1e12, "fp32", "measured", 1e11, "a reason", {"a", "b"}, {"c"}, 5e11, 0.125}});
  run.lines.push_back(
      {1, ProductsEvent{"own:2x3x4nn", {{"2x3x4nn", "own", {{"mkl", 2e-6}, {"own", 1e-6}}}}}});
  run.lines.push_back({1, HostLoadEvent{2, 4, 0.5, 3, 0.25, 0.125, "node-1", 8, 1.5, 2.5}});
  run.lines.push_back({1, GpuSlowdownEvent{"node-1", "0000:1b:00.0", 3, 400, 1.5, 2.5}});
  const SampleRun of_suite = part_of_suite(fixed_run(), whole_suite(), "llm");
  run.lines.push_back(of_suite.lines.front());
  const std::string start = event_to_json_line(0, of_suite.lines.front().event, no_previous_line);
  EXPECT_EQ(*std::get<StartEvent>(event_from_json_line(start).event).suite, whole_suite());
  std::set<std::string> kinds;
  for (const JournalLine& line : run.lines) {
    const std::string json = event_to_json_line(line.t_ns, line.event, no_previous_line);
    const ParsedLine parsed = event_from_json_line(json);
    EXPECT_EQ(event_to_json_line(parsed.t_ns, parsed.event, parsed.prev), json);
    kinds.insert(kind_name(line.event));
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Event>);
}

TEST(EventJson, WritesAStepAsTheContractSays) {
  StepEvent event = step(3);
  event.ops_strict = Ops::parse("8400000000000000000000");
  event.loss = std::numeric_limits<double>::quiet_NaN();
  event.gradient_norm = -std::numeric_limits<double>::infinity();
  const std::string json = event_to_json_line(5, event, "x");
  EXPECT_EQ(
      json,
      R"({"t_ns":5,"rank":0,"kind":"step","group":0,"n":3,"t_start_ns":0,"t_end_ns":1,)"
      R"("samples":1,"tokens":0,"ops_strict":"8400000000000000000000",)"
      R"("loss_nonfinite":"nan","gradient_norm_nonfinite":"-inf",)"
      R"("split":{"compute_s":0.0,"communication_s":0.0,"bubble_s":0.0,"data_s":0.0,"other_s":0.0},)"
      R"("prev":"x"})");
  const auto parsed = std::get<StepEvent>(event_from_json_line(json).event);
  EXPECT_TRUE(std::isnan(parsed.loss));
  EXPECT_EQ(parsed.gradient_norm, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(parsed.ops_strict, event.ops_strict);
}

TEST(EventJson, KeepsLargeSeeds) {
  WorkloadEvent event;
  event.seeds = {{"run", std::numeric_limits<std::uint64_t>::max()}};
  event.unit = "image";
  const std::string json = event_to_json_line(0, event, "x");
  EXPECT_NE(json.find("\"18446744073709551615\""), std::string::npos);
  EXPECT_EQ(std::get<WorkloadEvent>(event_from_json_line(json).event).seeds, event.seeds);
}

struct BadLine {
  const char* line;
  const char* says;
};
TEST(EventJson, SaysWhatIsWrongWithALine) {
  for (const auto& [line, says] : {
           BadLine{"", "it is empty"},
           BadLine{"[]", "expected a JSON object"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"dance","prev":""})", "unknown kind 'dance'"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"memory","prev":"x"})", "'peak_bytes' is missing"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"memory","peak_bytes":-1,"prev":"x"})",
                   "'peak_bytes' is not an integer in range"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"memory","peak_bytes":1,"extra":2,"prev":"x"})",
                   "unknown key 'extra'"},
           BadLine{R"({"t_ns":1.5,"rank":0,"kind":"memory","peak_bytes":1,"prev":"x"})", "'t_ns'"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"phase","phase":"lunch","prev":"x"})",
                   "'lunch' is no value of 'phase'"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"overhead","measurement_s":"1","prev":"x"})",
                   "'measurement_s' is not a number"},
           BadLine{R"({"t_ns":1,"rank":0,"kind":"memory","peak_bytes":1,"peak_bytes":2,"prev":""})",
                   "\"peak_bytes\" is there twice"},
       }) {
    EXPECT_NE(message_of([&] { event_from_json_line(line); }).find(says), std::string::npos)
        << line;
  }
}

/// Differences of times and sums of operations fit whatever the lines of a stranger say.
TEST(EventJson, BoundsTimesAndOperations) {
  const auto said = [](const std::string& t_ns, const std::string& executed) {
    const std::string line = fmt::format(
        R"({{"t_ns":"{}","rank":0,"kind":"observed","group":0,"n":0,"executed":"{}","strict":"1",)"
        R"("recompute":"0","calls":1,"prev":"x"}})",
        t_ns, executed);
    return message_of([&] { event_from_json_line(line); });
  };
  const std::string most_t = "2305843009213693952", most_ops = "79228162514264337593543950336";
  EXPECT_EQ(said(most_t, most_ops), "nothing was thrown");
  EXPECT_EQ(said("-" + most_t, most_ops), "nothing was thrown");
  const std::string late = "'t_ns' is not a time within 70 years";
  EXPECT_EQ(said("2305843009213693953", most_ops), late);
  EXPECT_EQ(said("-2305843009213693953", most_ops), late);
  EXPECT_EQ(said(most_t, "79228162514264337593543950337"),
            "'executed' is not a count of operations up to 2^96");
}

TEST(EventJson, RefusesALineThatNestsBeyondReading) {
  const std::string lists = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string line =
      R"({"t_ns":1,"rank":0,"kind":"config","config":)" + lists + R"(,"prev":""})";
  EXPECT_NE(message_of([&] { event_from_json_line(line); }).find("more than 64 levels"),
            std::string::npos);
}

TEST(JournalReader, ReadsWhatTheWriterWrote) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  const SampleRun run = search_run();
  {
    JournalWriter writer(path);
    for (const JournalLine& line : run.lines) writer.append(line.event);
    EXPECT_GT(writer.cost_s(), 0);
  }
  const Journal journal = read_journal(path);
  ASSERT_EQ(journal.lines.size(), run.lines.size());
  EXPECT_EQ(journal.torn_bytes, 0u);
  EXPECT_EQ(journal.sha256, sha256_file_hex(path));
  for (std::size_t i = 1; i < journal.lines.size(); ++i) {
    EXPECT_GE(journal.lines[i].t_ns, journal.lines[i - 1].t_ns);
  }
}

TEST(JournalWriter, WritesAGraphOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  SampleRun run = search_run();
  const std::string graph =
      std::get<TrialEvent>(run.lines[run.index<TrialEvent>()].event).graph.text;
  {
    JournalWriter writer(path);
    for (JournalLine& line : run.lines) {
      if (auto* trial = std::get_if<TrialEvent>(&line.event)) {
        trial->graph.text = graph;  // the caller always gives it
        trial->graph_hash = "same";
      }
      writer.append(line.event);
    }
  }
  int graphs = 0;
  for (const JournalLine& line : read_journal(path).lines) {
    if (const auto* trial = std::get_if<TrialEvent>(&line.event)) {
      graphs += !trial->graph.text.empty();
    }
  }
  EXPECT_EQ(graphs, 1);
}

TEST(JournalWriter, KeepsTheChainWhenManyThreadsAppend) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  constexpr int thread_count = 4, events_each = 200;
  {
    JournalWriter writer(path, {.flush_interval_s = 0.001, .clock = now_ns});
    writer.append(StartEvent{});
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; ++t) {
      threads.emplace_back([&writer, t] {
        for (int i = 0; i < events_each; ++i) {
          StepEvent event = step(static_cast<std::uint64_t>(i));
          event.group = t;
          writer.append(event);
          if (i % 50 == 0) writer.flush_now();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const Journal journal = read_journal(path);
  ASSERT_EQ(journal.lines.size(), 1u + thread_count * events_each);
  std::vector<std::uint64_t> next(thread_count, 0);
  for (std::size_t i = 1; i < journal.lines.size(); ++i) {
    const auto& event = std::get<StepEvent>(journal.lines[i].event);
    EXPECT_EQ(event.n, next[static_cast<std::size_t>(event.group)]++);
  }
}

TEST(JournalWriter, RefusesAnExistingFileAndAPathBelowAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  std::ofstream(path) << "x";
  EXPECT_NE(message_of([&] { JournalWriter writer(path); }).find(path), std::string::npos);
  const std::string below = path + "/journal.jsonl";
  EXPECT_NE(message_of([&] { JournalWriter writer(below); }).find(below), std::string::npos);
}

TEST(JournalReader, DropsATornLastLineAndSaysSo) {
  const SampleRun run = fixed_run();
  const std::string text = run.text();
  const std::size_t last_line = text.rfind('\n', text.size() - 2) + 1;
  for (std::size_t size = last_line + 1; size < text.size(); ++size) {
    const Journal journal = parse_journal(text.substr(0, size), "j");
    EXPECT_EQ(journal.lines.size(), run.lines.size() - 1);
    EXPECT_EQ(journal.torn_bytes, size - last_line);
    EXPECT_EQ(journal.first<StopEvent>(), nullptr);
  }
}

TEST(JournalReader, NamesPathAndLineOfAnyOtherDamage) {
  const std::string text = fixed_run().text();
  std::vector<std::size_t> starts{0};
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '\n') starts.push_back(i + 1);
  }
  for (std::size_t line = 1; line + 1 < starts.size(); ++line) {
    std::string dropped = text;
    dropped.erase(starts[line], starts[line + 1] - starts[line]);
    std::string edited = text;
    edited[starts[line] + 8] ^= 1;  // a digit of t_ns
    for (const std::string& bad : {dropped, edited}) {
      try {
        parse_journal(bad, "some/journal.jsonl");
        FAIL() << "line " << line + 1;
      } catch (const JournalError& error) {
        EXPECT_EQ(error.kind(), ErrorKind::verification);
        EXPECT_NEAR(static_cast<double>(error.line()), static_cast<double>(line) + 1.5, 0.6);
        EXPECT_NE(std::string(error.what()).find("some/journal.jsonl, line "), std::string::npos);
      }
    }
  }
}

TEST(JournalReader, RefusesLinesAfterTheStop) {
  SampleRun run = fixed_run();
  run.lines.push_back(run.lines[3]);
  EXPECT_NE(message_of([&] { run.journal(); }).find("it follows the 'stop' line"),
            std::string::npos);
}

TEST(JournalReader, RefusesOtherFilesAndVersions) {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& content) {
    const std::string path = folder.path() / "journal.jsonl";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  };
  std::string foreign = fixed_run().text();
  foreign.replace(foreign.find("\"_version\":1"), 12, "\"_version\":9");
  for (const std::string& content :
       {std::string(), std::string("no newline"), std::string("{}\n"), std::string("text\n"),
        std::string(1000, '\0') + "\n", foreign}) {
    const std::string path = file(content);
    EXPECT_THROW(read_journal(path), UserError);
    EXPECT_NE(message_of([&] { read_journal(path); }).find(path), std::string::npos);
  }
  EXPECT_NE(message_of([&] { read_journal(file(foreign)); }).find("version 9"), std::string::npos);
  EXPECT_THROW(read_journal(folder.path() / "missing"), UserError);
  EXPECT_THROW(read_journal(folder.path()), UserError);
}

TEST(JournalReader, DoesNotWaitForAPipe) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() / "journal.jsonl";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& read : {std::function([&] { read_journal(pipe); }),
                           std::function([&] { read_journal_start(pipe); }),
                           std::function([&] { sha256_file_hex(pipe); })}) {
    EXPECT_NE(message_of(read).find(pipe + " (it is no regular file)"), std::string::npos)
        << message_of(read);
  }
}

/// Runs `body` in a child process; its exit code, or minus the signal that ended it.
int in_child(auto&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// A process limit on file sizes makes the disk refuse as a full one does, also for root.
TEST(JournalWriter, AFullDiskLosesNoEarlierLine) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  constexpr rlim_t size_limit = 5000;
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{size_limit, size_limit + 100000},
        wide{size_limit + 100000, size_limit + 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    JournalWriter writer(path);
    writer.append(StartEvent{});
    std::string words;
    std::uint64_t accepted = 0;
    try {
      for (; accepted < 1000; ++accepted) {
        writer.append(step(accepted));
        writer.flush_now();
      }
    } catch (const SystemError& error) {
      words = error.what();
    }
    if (words.find(path) == std::string::npos || words.find("too large") == std::string::npos) {
      return 1;
    }
    if (writer.flush_now()) return 2;
    ::setrlimit(RLIMIT_FSIZE, &wide);  // space again
    writer.append(step(accepted));
    if (!writer.flush_now()) return 3;
    const Journal journal = read_journal(path);
    return journal.lines.size() == accepted + 2 && journal.torn_bytes == 0 ? 0 : 4;
  });
  EXPECT_EQ(code, 0);
}

// A limit on the process's memory, which AddressSanitizer and ThreadSanitizer do not outlive.
TEST(JournalWriter, WritesWhatItHasWhenThereIsNoMoreMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need their memory";
#endif
  // More than the heap that a thread has in reserve.
  constexpr std::size_t long_text = std::size_t{80} << 20, memory_left = std::size_t{8} << 20;
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  const int code = in_child([&] {
    std::atomic<bool> halted{false}, goes_on{false};
    JournalOptions options{.flush_interval_s = 0.001, .clock = now_ns};
    options.on_interval = [&] {
      halted = true;
      halted.notify_all();
      goes_on.wait(false);
    };
    JournalWriter writer(path, options);
    halted.wait(false);
    writer.append(StartEvent{});
    TrialEvent trial;
    trial.reason = std::string(long_text, 'x');
    writer.append(trial);
    ::malloc_trim(0);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + memory_left;
    const rlimit limit{most, most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    goes_on = true;
    goes_on.notify_all();
    while (std::filesystem::file_size(path) < long_text) std::this_thread::yield();
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_journal(path).lines.size(), 2u);
}

TEST(JournalWriter, KillLosesNoFlushedLine) {
  RandomStream random(3);
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const std::string path = folder.path() / "journal.jsonl";
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      JournalWriter writer(path, {.flush_interval_s = 0.002, .clock = now_ns});
      writer.append(StartEvent{});
      for (std::uint64_t n = 0;; ++n) {
        writer.append(step(n));
        if (n % 16 != 0) continue;
        if (!writer.flush_now()) ::_exit(1);
        if (::write(pipe_ends[1], &n, sizeof n) != sizeof n) ::_exit(2);
      }
    }
    ::close(pipe_ends[1]);
    // Kill after a random number of confirmed flushes.
    const std::uint64_t kill_after = 1 + random.below(40);
    std::uint64_t flushed = 0, n = 0;
    for (std::uint64_t i = 0; i < kill_after && ::read(pipe_ends[0], &n, sizeof n) == sizeof n;
         ++i) {
      flushed = n;
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(pipe_ends[0], &n, sizeof n) == static_cast<ssize_t>(sizeof n)) flushed = n;
    ::close(pipe_ends[0]);
    const Journal journal = read_journal(path);
    ASSERT_GE(journal.lines.size(), flushed + 2) << "round " << round;
    for (std::size_t i = 1; i < journal.lines.size(); ++i) {
      ASSERT_EQ(std::get<StepEvent>(journal.lines[i].event).n, i - 1);
    }
  }
}

TEST(JournalWriter, FlushesByItselfAndAtPhases) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal.jsonl";
  JournalWriter writer(path, {.flush_interval_s = 3600, .clock = now_ns});
  writer.append(StartEvent{});
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
  writer.append(PhaseEvent{});
  EXPECT_EQ(read_journal(path).lines.size(), 2u);

  const std::string other = folder.path() / "other.jsonl";
  JournalWriter quick(other, {.flush_interval_s = 0.001, .clock = now_ns});
  quick.append(StartEvent{});
  while (std::filesystem::file_size(other) == 0)
    std::this_thread::yield();  // ctest's limit ends it
  EXPECT_EQ(read_journal(other).lines.size(), 1u);
}

}  // namespace
}  // namespace heteroperf
