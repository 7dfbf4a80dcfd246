#include "runners/schedule/simulate/network_simulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

#include "metrics/base/name_table.hpp"
#include "runners/schedule/simulate/collective_table.hpp"
#include "runners/schedule/simulate/fabric.hpp"
#include "runners/schedule/simulate/message_table.hpp"
#include "runners/schedule/simulate/rank_clock.hpp"

namespace heteroperf {
namespace {

constexpr Named<NetworkModel> models[] = {{NetworkModel::latency, "latency"},
                                          {NetworkModel::links, "links"},
                                          {NetworkModel::rendezvous, "rendezvous"}};

constexpr double unknown = MessageTable::unknown;

/// Each rank runs ahead on its own clock until it has to wait for somebody, and leaves events for
/// its messages; the events run in order of time. Where transfers slow compute down, ranks do not
/// run ahead of the events, and the end of a compute is an event too.
class NetworkClock {
 public:
  NetworkClock(const Schedule& schedule, const TaskTable& tasks, const SimulationOptions& options)
      : schedule_(schedule),
        graph_(schedule.graph),
        network_(options.network),
        rendezvous_(options.model == NetworkModel::rendezvous),
        fabric_(schedule.graph, options.network),
        messages_(schedule, MessageIndex(tasks)),
        collectives_(schedule, CollectiveIndex(tasks), options.network.reduction_time),
        slows_down_(options.network.compute_slow_down > 1 && !fabric_.instant()) {
    for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
      ranks_.push_back({RankClock(static_cast<int>(rank), schedule.programs[rank], timeline_)});
    }
  }

  Timeline run() {
    for (int rank = static_cast<int>(ranks_.size()) - 1; rank >= 0; --rank) ready_.push_back(rank);
    run_ready();
    while (!events_.empty()) {
      clock_ = events_.top().time;
      do {
        while (!events_.empty() && events_.top().time == clock_) take_event();
        run_ready();
      } while (!events_.empty() && events_.top().time == clock_);
      fabric_.admit(issued_, [&](const Fabric::Ticket& ticket) { start(ticket.message, clock_); });
      issued_.clear();
      run_ready();
    }
    require_finished();
    list_transfers();
    return std::move(timeline_);
  }

 private:
  using Cause = Timeline::Cause;
  using Place = CollectiveTable::Place;

  struct Rank {
    RankClock clock;
    std::int32_t collectives = 0;  // passed
    std::int32_t transfers = 0;    // under way from or to here
    // Only where transfers slow compute down:
    double wake = unknown;         // the event this rank waits for
    bool computes = false;         // until then
    double work = 0, updated = 0;  // left of it at that time
  };

  enum class EventKind : std::int32_t { issue, end, wake };
  struct Event {
    double time;
    std::int32_t subject;  // message; of `wake`: rank
    EventKind kind;

    bool operator<(const Event& other) const { return time > other.time; }  // earliest on top
  };

  void take_event() {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case EventKind::issue:
        return issued_.push_back(ticket(event.subject));
      case EventKind::end:
        return end(event.subject);
      case EventKind::wake:
        return wake(event.subject, event.time);
    }
  }

  void run_ready() {
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (!finished(rank) && ranks_[rank].wake == unknown && step(rank)) {
      }
    }
  }

  /// False: has to wait.
  bool step(int rank) {
    RankClock& clock = ranks_[rank].clock;
    const Op op = clock.instruction().op;
    if (is_compute(op)) return compute(rank);
    if (is_message(op)) return message(rank);
    if (CollectiveIndex::names_one(op)) return collective(rank);
    clock.pass(op == Op::opt_step ? network_.step_time : 0);
    return true;
  }

  // --- Compute ---

  /// Of the next instruction and those that run as one with it.
  double work_of(int rank) const {
    const RankClock& clock = ranks_[rank].clock;
    const std::int32_t first = clock.next(), end = clock.unit_end();
    double sum = 0;
    for (std::int32_t i = first; i < end; ++i) {
      require_segment(rank, i, clock.instruction(i));
      sum += compute_time(graph_, clock.instruction(i));
    }
    return end - first > 1 ? sum * graph_.fused_cost_factor : sum;
  }

  void require_segment(int rank, std::int32_t index, const Instruction& i) const {
    if (i.segment >= 0 && i.segment < static_cast<int>(graph_.segments.size()) &&
        graph_.passes(i.segment, i.micro_batch) && graph_.segments[i.segment].rank == rank) {
      return;
    }
    throw UserError(place_in_program(schedule_, rank, index),
                    "the graph has no such segment or micro-batch at this rank",
                    "Check the schedule's programs.");
  }

  bool compute(int rank) {
    Rank& state = ranks_[rank];
    const double time = state.clock.time();
    if (!slows_down_) {
      state.clock.pass_unit(time + work_of(rank));
      return true;
    }
    if (time > clock_) {
      wake_at(rank, time);
      return false;
    }
    state.computes = true;
    state.updated = time;
    state.work = work_of(rank);
    wake_at(rank, time + state.work * pace(state));
    return false;
  }

  /// Time per work.
  double pace(const Rank& state) const {
    return state.transfers > 0 ? network_.compute_slow_down : 1;
  }

  void wake_at(int rank, double time) {
    ranks_[rank].wake = time;
    events_.push({time, rank, EventKind::wake});
  }

  void wake(int rank, double time) {
    Rank& state = ranks_[rank];
    if (state.wake != time) return;  // moved since
    state.wake = unknown;
    if (state.computes) state.clock.pass_unit(time);
    state.computes = false;
    ready_.push_back(rank);
  }

  void count_transfer(int rank, int change) {
    Rank& state = ranks_[rank];
    const double before = pace(state);
    state.transfers += change;
    if (!state.computes || pace(state) == before) return;
    state.work -= (clock_ - state.updated) / before;
    state.updated = clock_;
    wake_at(rank, clock_ + std::max(0.0, state.work) * pace(state));
  }

  // --- Messages ---

  bool message(int rank) {
    RankClock& clock = ranks_[rank].clock;
    if (!clock.posted(clock.next())) post(rank);
    const bool sends = is_send(clock.instruction().op);
    if (sends && !rendezvous_) {
      clock.skip();
      return true;
    }
    const MessageTable::Message& m = messages_[messages_.id(rank, clock.next())];
    if (m.end == unknown) return false;
    const Fabric::Route& route = fabric_.route(m.route);
    const bool other_came_last = !rendezvous_ || m.issued > clock.posted_at();
    clock.pass_wait(sends ? m.end : m.end + route.latency, m.issued,
                    other_came_last ? other_end(m, sends) : clock.before_post());
    return true;
  }

  /// Seen from its send, or its receive.
  Cause other_end(const MessageTable::Message& m, bool from_send) const {
    const Fabric::Route& route = fabric_.route(m.route);
    return from_send ? Cause{route.target, m.receive} : Cause{route.source, m.send};
  }

  /// Issues the message at the rank's place and those of its group.
  void post(int rank) {
    RankClock& clock = ranks_[rank].clock;
    const std::int32_t end = clock.group_end();
    clock.post(end);
    for (std::int32_t i = clock.next(); i < end; ++i) {
      const bool sends = is_send(clock.instruction(i).op);
      if (sends && !rendezvous_) clock.stamp(i, clock.time());
      if (sends || rendezvous_) post_end(clock.time(), messages_.id(rank, i));
    }
  }

  void post_end(double time, std::int32_t id) {
    MessageTable::Message& m = messages_[id];
    const bool first = m.issued == unknown;
    m.issued = first ? time : std::max(m.issued, time);
    if (first && rendezvous_) return;
    if (fabric_.instant()) return start(id, m.issued);
    events_.push({m.issued, id, EventKind::issue});
  }

  Fabric::Ticket ticket(std::int32_t id) const {
    const MessageTable::Message& m = messages_[id];
    return {m.issued, fabric_.route(m.route).source, m.send, id, m.route};
  }

  void start(std::int32_t id, double time) {
    MessageTable::Message& m = messages_[id];
    const Fabric::Route& route = fabric_.route(m.route);
    m.start = time;
    m.end = time + route.seconds;
    if (route.seconds > 0) {
      events_.push({m.end, id, EventKind::end});
      if (slows_down_) {
        count_transfer(route.source, 1);
        count_transfer(route.target, 1);
      }
    }
    unblock(route.target, m.receive);
    if (rendezvous_) unblock(route.source, m.send);
  }

  void end(std::int32_t id) {
    const std::int32_t index = messages_[id].route;
    fabric_.release(index);
    if (!slows_down_) return;
    count_transfer(fabric_.route(index).source, -1);
    count_transfer(fabric_.route(index).target, -1);
  }

  void unblock(int rank, std::int32_t index) {
    const RankClock& clock = ranks_[rank].clock;
    if (clock.next() == index && clock.posted(index)) ready_.push_back(rank);
  }

  // --- Collectives ---

  bool collective(int rank) {
    Rank& state = ranks_[rank];
    const std::int32_t id = collectives_.of(rank)[state.collectives];
    if (id < 0) {
      ++state.collectives;
      state.clock.pass(0);
      return true;
    }
    CollectiveTable::Collective& c = collectives_[id];
    if (!state.clock.posted(state.clock.next())) reach(rank, id);
    if (c.missing > 0) return false;
    ++state.collectives;
    state.clock.pass_wait(
        c.end, c.start,
        c.latest.rank == rank ? state.clock.before_post() : Cause{c.latest.rank, c.latest.index});
    return true;
  }

  void reach(int rank, std::int32_t id) {
    RankClock& clock = ranks_[rank].clock;
    CollectiveTable::Collective& c = collectives_[id];
    clock.post(clock.next() + 1);
    if (c.latest.rank < 0 || clock.time() > c.start) {
      c.start = clock.time();
      c.latest = {rank, clock.next()};
    }
    if (--c.missing > 0) return;
    c.end = c.start + c.time;
    for (const Place& place : collectives_.places(id)) {
      if (place.rank != rank) ready_.push_back(place.rank);
    }
  }

  // --- The end ---

  bool finished(int rank) const { return ranks_[rank].clock.finished(); }

  void require_finished() const {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (!finished(rank)) throw waiting_cycle(rank);
    }
  }

  /// The place that a blocked rank waits for.
  Place awaited(int rank) const {
    const RankClock& clock = ranks_[rank].clock;
    const Op op = clock.instruction().op;
    if (is_message(op)) {
      const Cause other = other_end(messages_[messages_.id(rank, clock.next())], is_send(op));
      return {other.rank, other.index};
    }
    const auto places = collectives_.places(collectives_.of(rank)[ranks_[rank].collectives]);
    return *std::find_if(places.begin(), places.end(), [&](const Place& place) {
      return !ranks_[place.rank].clock.posted(place.index);
    });
  }

  /// Everybody waits for somebody who has not come: following that comes round.
  UserError waiting_cycle(int rank) const {
    std::vector<std::int32_t> seen(ranks_.size(), -1);
    std::vector<int> walk;
    while (seen[rank] < 0) {
      seen[rank] = static_cast<std::int32_t>(walk.size());
      walk.push_back(rank);
      rank = awaited(rank).rank;
    }
    walk.erase(walk.begin(), walk.begin() + seen[rank]);
    std::string cycle;
    for (const int member : walk) {
      const Place place = awaited(member);
      cycle += fmt::format("{}{} waits for {}", cycle.empty() ? "" : "; ",
                           place_in_program(schedule_, member, ranks_[member].clock.next()),
                           place_in_program(schedule_, place.rank, place.index));
    }
    return UserError(
        fmt::format("the schedule hangs with {} sends", rendezvous_ ? "rendezvous" : "buffered"),
        cycle, "Change the order of a rank, or put messages that cross into one group.");
  }

  void list_transfers() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const std::vector<Instruction>& program = schedule_.programs[rank];
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (!is_send(program[i].op)) continue;
        const MessageTable::Message& m =
            messages_[messages_.id(rank, static_cast<std::int32_t>(i))];
        timeline_.transfers.push_back({rank, m.send, m.issued, m.start, m.end});
      }
    }
  }

  const Schedule& schedule_;
  const PipelineGraph& graph_;
  const Network& network_;
  bool rendezvous_;
  Fabric fabric_;
  MessageTable messages_;
  CollectiveTable collectives_;
  bool slows_down_;
  std::vector<Rank> ranks_;
  std::vector<int> ready_;
  std::vector<Fabric::Ticket> issued_;
  std::priority_queue<Event> events_;
  double clock_ = 0;
  Timeline timeline_;
};

}  // namespace

const char* to_string(NetworkModel model) { return name_of(models, model); }

NetworkModel parse_network_model(const std::string& name) {
  return parse_name(models, "model", name);
}

Timeline simulate_network(const Schedule& schedule, const SimulationOptions& options) {
  if (schedule.level != ScheduleLevel::lowered) {
    throw UserError(fmt::format("model {} on a compute-only schedule", to_string(options.model)),
                    "it has no messages", "Lower the schedule first, or use the model latency.");
  }
  return NetworkClock(schedule, TaskTable(schedule.graph), options).run();
}

}  // namespace heteroperf
