#include "suite/program/turn_protocol.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "metrics/base/error.hpp"
#include "suite/training/turn_taker.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;

bool never() { return false; }

TEST(TurnAddress, TextAndBack) {
  const TurnAddress address{1, 12.5, "/some where/a:b"};
  const TurnAddress read = TurnAddress::parse(address.text());
  EXPECT_EQ(read.version, 1);
  EXPECT_EQ(read.patience_s, 12.5);
  EXPECT_EQ(read.prefix, "/some where/a:b");
}

TEST(TurnAddress, RefusesWhatIsNone) {
  for (const char* text : {"", "1", "1:2", "1:2:", "x:2:/p", "1:-1:/p", "1:0:/p", "1;2;/p"}) {
    EXPECT_THROW(TurnAddress::parse(text), UserError) << text;
  }
}

TEST(TurnLines, ReadyAndBack) {
  const auto read = parse_ready(to_line(TurnReady{456, "/a folder/of two"}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->peak_bytes, 456u);
  EXPECT_EQ(read->folder, "/a folder/of two");
}

TEST(TurnLines, DoneAndBack) {
  const auto read = parse_done(to_line(TurnDone{10, 20, 30, {5, 6, 7}}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->cpu_ns, 10);
  EXPECT_EQ(read->wait_ns, 20);
  EXPECT_EQ(read->idle_cpu_ns, 30);
  EXPECT_EQ(read->step_ns, (std::vector<std::int64_t>{5, 6, 7}));
}

TEST(TurnLines, RefuseGarbage) {
  for (const char* line :
       {"", "done", "done 2 1 1 1 5", "done 1 1 1 1 5 6", "done 1 1 1 1 5x", "done 1 1 1 1 -5",
        "done 1 1 1 1 0", "done 1 -1 1 1 5", "done 1 1 -1 1 5", "done 1 1 1 -1 5",
        "done 1 1 1 1 9223372036854775807", "done x", "ready", "gone 1 1 1 1 5"}) {
    EXPECT_FALSE(parse_done(line)) << line;
  }
  for (const char* line : {"", "ready", "ready 2", "ready x /f", "ready -1 /f", "done 2 /f"}) {
    EXPECT_FALSE(parse_ready(line)) << line;
  }
}

class TurnPipes : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  TurnAddress address_{1, 5, folder_.path() / "turns"};
};

TEST_F(TurnPipes, LinesGoBothWaysWhole) {
  TurnPipe gate(TurnPipe::Side::gate, address_), run(TurnPipe::Side::run, address_);
  gate.send("steps 3");
  gate.send("end");
  run.send("done 1 1 1 1 5");
  const auto soon = Clock::now() + std::chrono::seconds(30);
  EXPECT_EQ(run.receive(soon, never).line, "steps 3");
  EXPECT_EQ(run.receive(soon, never).line, "end");
  EXPECT_EQ(gate.receive(soon, never).line, "done 1 1 1 1 5");
}

TEST_F(TurnPipes, SilenceEndsAtTheDeadlineOrOnRequest) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  EXPECT_EQ(gate.receive(Clock::now(), never).event, TurnPipe::Event::timed_out);
  EXPECT_EQ(gate.receive(Clock::time_point::max(), [] { return true; }).event,
            TurnPipe::Event::gave_up);
}

TEST_F(TurnPipes, ALineThatNeverEndsIsHeldToTheDeadlineToo) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  const int pipe = ::open(address_.answers().c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  std::size_t asked = 0;
  const auto drip = [&] {  // a byte more whenever the gate has taken the last one
    return ++asked < 1000 && ::write(pipe, "x", 1) != 1;
  };
  ASSERT_EQ(::write(pipe, "x", 1), 1);
  EXPECT_EQ(gate.receive(Clock::now(), drip).event, TurnPipe::Event::timed_out);
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(gate.receive(Clock::time_point::max(), [&] { return drip() || asked == 5; }).event,
            TurnPipe::Event::gave_up);
  ::close(pipe);
}

TEST_F(TurnPipes, ARunSeesThatItsGateIsGone) {
  auto gate = std::make_unique<TurnPipe>(TurnPipe::Side::gate, address_);
  TurnPipe run(TurnPipe::Side::run, address_);
  gate.reset();
  EXPECT_EQ(run.receive(Clock::now() + std::chrono::seconds(30), never).event,
            TurnPipe::Event::gone);
  EXPECT_THROW(run.send("done 1 1 1 1 5"), SystemError);
}

TEST_F(TurnPipes, ARunWithoutAGateIsToldSo) {
  EXPECT_THROW(TurnPipe(TurnPipe::Side::run, address_), SystemError);
}

TEST_F(TurnPipes, ATakerOfAnotherVersionTellsItsOwn) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  TurnAddress later = address_;
  later.version = 2;
  EXPECT_THROW(TurnTaker{later}, UserError);
  EXPECT_EQ(gate.receive(Clock::now() + std::chrono::seconds(30), never).line, "turns 1");
}

TEST_F(TurnPipes, ATakerMovesByTheGatesOrders) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  TurnTaker taker(address_);
  const auto soon = Clock::now() + std::chrono::seconds(30);
  EXPECT_EQ(gate.receive(soon, never).line, "turns 1");
  taker.set_folder("/out");
  taker.count_step();
  gate.send("steps 2");
  const std::int64_t before = taker.clock().now_ns();
  const TurnOrder order = taker.next_order({0, 0, 0, 4096}, never);
  EXPECT_EQ(order.kind, TurnOrder::Kind::steps);
  EXPECT_EQ(order.steps, 2u);
  const auto ready = parse_ready(gate.receive(soon, never).line);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->folder, "/out");
  EXPECT_EQ(ready->peak_bytes, 4096u);
  EXPECT_FALSE(taker.is_over());
  taker.count_step();
  EXPECT_FALSE(taker.is_over());
  taker.count_step();
  EXPECT_TRUE(taker.is_over());
  gate.send("end");
  EXPECT_EQ(taker.next_order({0.5, 0.25, 0, 0}, never).kind, TurnOrder::Kind::end);
  const auto done = parse_done(gate.receive(soon, never).line);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->step_ns.size(), 2u);
  EXPECT_EQ(done->cpu_ns, 500000000);
  EXPECT_GE(taker.clock().now_ns(), before);
}

TEST_F(TurnPipes, OtherRanksHearTheSameOrderWheneverTheyAsk) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  TurnTaker taker(address_);
  std::string early, late;
  taker.answer("0", [&](std::string text) { early = std::move(text); });
  EXPECT_EQ(early, "");
  gate.send("steps 4");
  taker.next_order({}, never);
  taker.answer("0", [&](std::string text) { late = std::move(text); });
  EXPECT_FALSE(early.empty());
  EXPECT_EQ(early, late);
}

TEST_F(TurnPipes, ATakerEndsWhereTheGateSaysAnythingElse) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  TurnTaker taker(address_);
  for (const char* line : {"steps", "steps 0", "steps -1", "steps 2 3", "go", "\x01\x02"}) {
    gate.send(line);
    EXPECT_THROW(taker.next_order({}, never), SystemError) << line;
  }
}

TEST_F(TurnPipes, ATakerDoesNotWaitForEver) {
  TurnPipe gate(TurnPipe::Side::gate, address_);
  TurnAddress impatient = address_;
  impatient.patience_s = 0.01;
  TurnTaker taker(impatient);
  try {
    taker.next_order({}, never);
    FAIL() << "it went on without an order";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
  }
}

TEST(StoppableClock, LeavesOutWhatItStoodStill) {
  StoppableClock clock;
  const std::int64_t before = clock.now_ns();
  clock.stop();
  const std::int64_t stopped = clock.now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(clock.now_ns(), stopped);
  EXPECT_GE(stopped, before);
  EXPECT_GE(clock.go_on(), 5'000'000);
  EXPECT_GE(clock.now_ns(), stopped);
}

}  // namespace
}  // namespace heteroperf
