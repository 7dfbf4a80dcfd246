// A message of the control channel is one byte that names its kind, then a body: a line of a
// journal for an event, nothing for a flush or a question of the clock, the text of a question for
// a master. Messages of one rank arrive in order, so an answered flush proves that all earlier
// events have been handled. Whichever rank waits for a reply does not hold up the others.
#include "suite/ranks/rank_messages.hpp"

#include <fmt/format.h>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "results/journal/events_json.hpp"
#include "results/journal/journal.hpp"

namespace heteroperf {
namespace {

// The first byte of a message says what the rest is.
constexpr char event_mark = 'e', flush_mark = 'f', clock_mark = 'c', question_mark = 'q';

}  // namespace

ControlChannel::Handler route_messages(RankMessageHandlers handlers) {
  return [handlers = std::move(handlers)](RankId from, std::string message,
                                          ControlChannel::Reply reply) {
    HETEROPERF_EXPECT(!message.empty());
    const std::string body = message.substr(1);
    switch (message[0]) {
      case event_mark:
        // The time in the line is replaced by the journal's own when it is appended.
        handlers.on_event(event_from_json_line(body).event);
        break;
      case flush_mark:
        reply({});
        break;
      case clock_mark:
        reply(std::to_string(now_ns()));
        break;
      case question_mark:
        handlers.on_question(from, body, std::move(reply));
        break;
      default:
        throw Error(
            ErrorKind::internal,
            {{fmt::format("rank {} sent a message of unknown kind '{}'", from.value(), message[0]),
              "", ""}});
    }
  };
}

void post_event(ControlChannel& control, const Event& event) {
  control.post(event_mark + event_to_json_line(0, event, no_previous_line));
}

void flush_events(ControlChannel& control) { control.call(std::string(1, flush_mark)); }

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
