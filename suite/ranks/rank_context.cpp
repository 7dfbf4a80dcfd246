// Everything that a rank does for the sake of measuring (events, log lines, the progress line) is
// timed here, once, and summed in `measuring_s`; the record reports it as overhead. The journal's
// writer on rank 0 counts its own cost, so an event that goes there directly is not counted twice.
//
// A message of the control channel is one byte that names its kind, then a body: a line of a
// journal for an event, nothing for a question of the clock, the text of a question for a master.
// Messages of one rank arrive in order, so an answer proves that all earlier events have been
// handled. Whichever rank waits for a reply does not hold up the others.
#include "suite/ranks/rank_context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "suite/program/signals.hpp"

namespace heteroperf {
namespace {

// The first byte of a message says what the rest is.
constexpr char event_mark = 'e', clock_mark = 'c', question_mark = 'q';

}  // namespace

DeviceEvent device_event(RankId rank, const RankDevice& device) {
  DeviceEvent event{
      .rank = rank.value(), .device = device.name, .kernels = to_string(device.kernels)};
  if (!device.chip) return event;
  event.emulated = true;
  event.products = to_string(device.chip->products);
  event.sum_order = device.chip->sum_order;
  event.lacks = device.chip->lacks;
  return event;
}

void add_changed_chips(const Journal& journal, const std::vector<std::string>& names,
                       ProblemList& problems) {
  std::vector<RankDevice> devices;
  for (const std::string& name : names) devices.push_back(read_device(name));
  for (const DeviceEvent* then : journal.all<DeviceEvent>()) {
    const auto device = std::ranges::find(devices, then->device, &RankDevice::name);
    if (device == devices.end()) continue;
    const DeviceEvent now = device_event(RankId(then->rank), *device);
    if (now.products == then->products && now.sum_order == then->sum_order &&
        now.lacks == then->lacks) {
      continue;
    }
    const auto numerics = [](const DeviceEvent& event) {
      return fmt::format(
          "products {}, order of sums {}, without {}", event.products, event.sum_order,
          event.lacks.empty() ? "nothing" : fmt::format("{}", fmt::join(event.lacks, " ")));
    };
    problems.add(then->device + " is not the chip that the run computed with",
                 fmt::format("then {}; now {}", numerics(*then), numerics(now)),
                 "Give its file the numerics of the run again.");
  }
}

void RankContext::show(const ProgressState& state) {
  if (first.progress == nullptr) return;
  const ScopedSeconds measured(measuring_s);
  first.progress->update(state);
}

void RankContext::log(const std::string& text) {
  if (!log_file) return;
  const ScopedSeconds measured(measuring_s);
  log_file->write(text);
}

void RankContext::log_step(std::uint64_t n, double loss) {
  if (!log_file) return;
  const ScopedSeconds measured(measuring_s);
  log_file->step(n, loss);
}

void RankContext::post(const Event& event) {
  if (log_file) {
    const ScopedSeconds measured(measuring_s);
    log_file->note(event);
  }
  if (first.journal != nullptr)
    return first.journal->append(event);  // which keeps account of itself
  const ScopedSeconds measured(measuring_s);
  control().post(event_mark + event_to_json_line(0, event, no_previous_line));
}

bool stop_wanted(const RankContext& context) {
  // A dead rank comes first: a launcher then sends signals that are no user's wish. A group that
  // needs nobody else would otherwise train on.
  if (const auto failure = context.control().failure()) throw PeerError(*failure, "training");
  if (context.control().stop_requested()) return true;
  const char* signal = stop_signal();
  if (signal == nullptr) return false;
  context.control().request_stop(signal);
  return true;
}

bool share_answer(Communicator& group, bool decision, RankId root) {
  std::uint8_t answer = decision ? 1 : 0;
  group.broadcast(std::span(&answer, 1), root);
  return answer != 0;
}

Directive agree(const RankContext& context, Communicator& group,
                const std::function<Directive()>& of_leader) {
  Directive directive = Directive::interrupt;
  if (!stop_wanted(context)) {
    directive = group.rank() == RankId(0) ? of_leader() : Directive::go_on;
  }
  std::uint8_t byte = static_cast<std::uint8_t>(directive);
  group.broadcast(std::span(&byte, 1), RankId(0));
  return static_cast<Directive>(byte);
}

ControlChannel::Handler answer_ranks(JournalWriter& journal, QuestionHandler on_question) {
  return [&journal, on_question = std::move(on_question)](RankId from, std::string message,
                                                          ControlChannel::Reply reply) {
    HETEROPERF_EXPECT(!message.empty());
    const std::string body = message.substr(1);
    switch (message[0]) {
      case event_mark:
        // The time in the line is replaced by the journal's own when it is appended.
        return journal.append(event_from_json_line(body).event);
      case clock_mark:
        return reply(std::to_string(now_ns()));
      case question_mark:
        return on_question(body, std::move(reply));
      default:
        throw Error(
            ErrorKind::internal,
            {{fmt::format("rank {} sent a message of unknown kind '{}'", from.value(), message[0]),
              "", ""}});
    }
  };
}

std::int64_t ask_clock(ControlChannel& control) {
  return std::stoll(control.call(std::string(1, clock_mark)));
}

std::string ask_master(ControlChannel& control, const std::string& question) {
  return control.call(question_mark + question);
}

void tell_master(ControlChannel& control, const std::string& news) {
  control.post(question_mark + news);
}

}  // namespace heteroperf
