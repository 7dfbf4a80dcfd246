// The side of a run in *lockstep*: a gate compares two programs by letting them advance in turns of
// a few steps, only one of them at work at a time. The gate speaks to rank 0 through a pair of
// pipes (program/turn_protocol.hpp). The other ranks ask rank 0 for order number n over the control
// channel, and their question stays unanswered until the gate has spoken; so all ranks sleep
// meanwhile.
//
// The clock of the journal stops while the run stands still, so that its times look like those of
// an uninterrupted run. Each turn is reported with the CPU time it used, the time its threads
// waited for a core, and the CPU time used while it should have slept: from these the gate sees
// whether the other program or a third one disturbed it.
#include "suite/training/turn_taker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/base/strict_json.hpp"
#include "results/journal/journal.hpp"
#include "runners/cluster/system_files.hpp"
#include "suite/ranks/rank_context.hpp"
#include "suite/watch/host_load.hpp"

namespace heteroperf {
namespace {

std::int64_t to_ns(double seconds) { return std::llround(seconds / nanosecond); }

/// All threads of this process by their numbers (proc(5), /proc/PID/schedstat: nanoseconds on a
/// core, then nanoseconds of waiting for one).
std::map<std::string, RankTurns::ThreadTime> thread_times() {
  std::map<std::string, RankTurns::ThreadTime> times;
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream file(thread.path() / "schedstat");
    double cpu_ns = 0, wait_ns = 0;
    if (!(file >> cpu_ns >> wait_ns)) continue;
    times[thread.path().filename()] = {cpu_ns * nanosecond, wait_ns * nanosecond};
  }
  return times;
}

/// "steps 4" or "end" of the gate.
std::optional<TurnOrder> order_of_line(const std::string& line) {
  constexpr std::string_view steps = "steps ";
  if (line == "end") return TurnOrder{};
  if (!line.starts_with(steps)) return std::nullopt;
  const auto count = parse_integer(std::string_view(line).substr(steps.size()));
  if (!count || *count < 1) return std::nullopt;
  return TurnOrder{TurnOrder::Kind::steps, static_cast<std::uint64_t>(*count), 0};
}

}  // namespace

std::int64_t StoppableClock::now_ns() const {
  const std::lock_guard lock(mutex_);
  // While it is stopped the clock shows the moment of the stop.
  return (stopped_at_ns_ != 0 ? stopped_at_ns_ : heteroperf::now_ns()) - held_ns_;
}

void StoppableClock::stop() {
  const std::lock_guard lock(mutex_);
  stopped_at_ns_ = heteroperf::now_ns();
}

std::int64_t StoppableClock::go_on() {
  const std::lock_guard lock(mutex_);
  const std::int64_t held_ns = heteroperf::now_ns() - stopped_at_ns_;
  held_ns_ += held_ns;
  stopped_at_ns_ = 0;
  return held_ns;
}

std::unique_ptr<TurnTaker> TurnTaker::from_environment() {
  const char* text = std::getenv(TurnAddress::variable);
  if (text == nullptr || *text == '\0') return nullptr;
  return std::make_unique<TurnTaker>(TurnAddress::parse(text));
}

TurnTaker::TurnTaker(const TurnAddress& address)
    : pipe_(TurnPipe::Side::run, address), patience_s_(address.patience_s) {
  // Sent before the version is compared, so that the gate can name both versions.
  pipe_.send(fmt::format("turns {}", turn_protocol_version));
  if (address.version == turn_protocol_version) return;
  throw UserError(
      fmt::format("{} asks for version {} of lockstep", TurnAddress::variable, address.version),
      fmt::format("this program speaks version {}", turn_protocol_version),
      "Run both programs alone.");
}

void TurnTaker::refuse(const std::string& why) {
  pipe_.send("refused " + why);
  throw UserError("this run cannot advance in lockstep", why, "Run it alone.");
}

void TurnTaker::count_step() {
  if (!told_ready_) return;
  const std::int64_t now = now_ns();
  step_ns_.push_back(now - last_ns_);
  last_ns_ = now;
}

TurnOrder TurnTaker::next_order(const TurnUsage& usage, const std::function<bool()>& stop) {
  if (told_ready_) {
    pipe_.send(to_line(
        TurnDone{to_ns(usage.cpu_s), to_ns(usage.wait_s), to_ns(usage.idle_cpu_s), step_ns_}));
  } else {
    pipe_.send(to_line(TurnReady{static_cast<std::uint64_t>(usage.peak_bytes), folder_}));
    told_ready_ = true;
  }
  // The report leaves while the clock still runs; only the wait is cut out of the journal's time.
  step_ns_.clear();
  clock_.stop();
  TurnOrder order = wait_for_order(stop);
  order.held_ns = clock_.go_on();
  wanted_ = order.steps;
  publish(order);
  last_ns_ = now_ns();
  return order;
}

TurnOrder TurnTaker::wait_for_order(const std::function<bool()>& stop) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(patience_s_));
  const auto [event, line] = pipe_.receive(deadline, stop);
  switch (event) {
    case TurnPipe::Event::line:
      if (const auto order = order_of_line(line)) return *order;
      throw SystemError("the gate in lockstep said '" + line + "'", "'steps N' or 'end' is wanted",
                        "", ErrorKind::run_failed);
    case TurnPipe::Event::gave_up:
      return {TurnOrder::Kind::interrupt, 0, 0};
    case TurnPipe::Event::gone:
      throw SystemError("the gate in lockstep is gone", "nobody can give this run its next turn",
                        "", ErrorKind::run_failed);
    case TurnPipe::Event::timed_out:
      break;
  }
  throw SystemError(fmt::format("no turn came within {:g} s", patience_s_),
                    "the gate in lockstep, or the other program, is stuck", "", ErrorKind::timeout);
}

void TurnTaker::publish(const TurnOrder& order) {
  const std::string text = Json{order.kind, order.steps, order.held_ns}.dump();
  std::vector<ControlChannel::Reply> waiting;
  {
    const std::lock_guard lock(mutex_);
    // Replies are sent without the lock, since a reply may lead to the next question.
    waiting.swap(asked_);
    ++orders_;
    last_order_ = text;
  }
  for (const ControlChannel::Reply& reply : waiting) reply(text);
}

void TurnTaker::answer(const std::string& question, ControlChannel::Reply reply) {
  const std::size_t number = parse_integer(question).value_or(0);
  std::string order;
  {
    const std::lock_guard lock(mutex_);
    // All ranks meet before each order, so none asks for any but the last one and the next.
    if (number >= orders_) {
      asked_.push_back(std::move(reply));
      return;
    }
    order = last_order_;
  }
  reply(order);
}

TurnUsage RankTurns::usage_of_turn() {
  TurnUsage usage;
  if (!speaks_) return usage;
  usage.cpu_s = process_cpu_s() - cpu_s_;
  usage.idle_cpu_s = idle_cpu_s_;
  const auto peak = SystemFiles().memory("proc/self/status", "VmHWM");
  if (peak) usage.peak_bytes = static_cast<double>((*peak).value());
  auto now = thread_times();
  for (const auto& [thread, time] : now) {
    const ThreadTime& before = threads_[thread];
    // A thread that is new since the last turn starts from 0.
    usage.wait_s += std::min(time.wait_s - before.wait_s, time.cpu_s - before.cpu_s);
  }
  threads_ = std::move(now);
  return usage;
}

TurnOrder RankTurns::stand_still() {
  const TurnUsage usage = usage_of_turn();
  std::array<double, 4> sums{usage.cpu_s, usage.wait_s, usage.idle_cpu_s, usage.peak_bytes};
  if (context_.all_ranks().size() > 1) context_.all_ranks().all_reduce(std::span(sums));
  const double stopped_cpu_s = process_cpu_s();
  TurnOrder order;
  if (context_.first.turns != nullptr) {
    order = context_.first.turns->next_order({sums[0], sums[1], sums[2], sums[3]},
                                             [this] { return stop_wanted(context_); });
  } else {
    const Json json = Json::parse(ask_master(context_.control(), std::to_string(number_)));
    order = {json[0], json[1], json[2]};
  }
  ++number_;
  cpu_s_ = process_cpu_s();
  idle_cpu_s_ = cpu_s_ - stopped_cpu_s;
  context_.clock_offset_ns -= order.held_ns;
  return order;
}

}  // namespace heteroperf
