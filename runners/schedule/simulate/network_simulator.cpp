// The models `links` and `rendezvous`, on a lowered schedule.
//
// Each rank runs its program in order on one stream. Only this order, arrivals and collectives
// decide when an instruction runs. That what it needs stands before it is for check_schedule().
//
// **Messages.** A message is issued when its send is reached (`rendezvous`: and its receive too).
// It starts when its link has a free slot and, between nodes, where cards have a limit, the cards
// of both ranks are free. It holds them for bytes / bandwidth (between nodes: / card_bandwidth
// where that is slower; a part of a sequence carries its share of the bytes) and arrives
// graph.latency after that. Messages start in the order of issue, ties by rank, then index of the
// send; one that still waits for another link or card lets later ones pass. A message that can
// only be issued because another arrived in no time comes after those issued at that instant.
//
// **Sends and receives.** A receive blocks its rank until the arrival. A send takes no time; under
// `rendezvous` it blocks until its transfer has ended. A group is issued when its first message is
// reached, then its members are waited for in their order.
//
// **Compute.** With compute_slow_down s, work on a rank proceeds at 1/s while any transfer (not
// latency) from or to it is under way. A fused pair takes the sum of its costs times the graph's
// factor; RECOMPUTE takes a forward; OPT_STEP takes step_time; LOAD, LOSS and FREE take no time.
//
// **Collectives** start when the last member rank has come, take latency · ⌈log2(members)⌉ + the
// interaction's cost (a reduction: reduction_time), and block all of them until they end.
//
// **Monotonicity.** Under `links`, in full duplex, without a card limit and slow-down, a lower
// latency or a higher bandwidth or capacity never makes a given schedule later anywhere: each link
// serves one sender in the order of its program. Otherwise an earlier message may take a shared
// link or card from a more urgent one, or fall into compute.
//
// **Timeline.** A message's instructions span the time they block their rank (a send under
// `links`: its issue). The cause of a wait is the other end of the message or the last member of a
// collective; the cause of anything else is the instruction of its rank that ended at its start.
//
// **How it runs.** As in the model `latency`, each rank runs ahead on its own clock until it has to
// wait for somebody (RankClocks). Here it also leaves *events* for its messages, which share links;
// the events run in order of time. Where transfers slow compute down, ranks do not run ahead of the
// events, and the end of a compute is an event too.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <utility>

#include "metrics/base/error.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/ir/grouped_lists.hpp"
#include "runners/schedule/simulate/fabric.hpp"
#include "runners/schedule/simulate/rank_clocks.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t most_named = 8;
/// A time that nobody knows yet.
constexpr double unknown_time = std::numeric_limits<double>::infinity();

/// Every message of a schedule. The activation and the gradient of an index's number are messages
/// of their own.
class MessageTable {
 public:
  struct Message {
    std::int32_t send = -1, receive = -1;  ///< in the programs of its source and target
    std::int32_t route = -1;               ///< 2 · edge, + 1 for a gradient
    double issued = unknown_time;          ///< it may start from then on
    double start = unknown_time, end = unknown_time;
  };

  /// Throws UserError with the places of messages that the graph does not have at their rank, that
  /// stand there twice, or that lack their other end. It names a few; a broken file may have
  /// millions.
  MessageTable(const Schedule& schedule, const MessageIndex& index)
      : messages_(2 * static_cast<std::size_t>(index.size())) {
    std::vector<Problem> problems;
    for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
      const std::vector<Instruction>& program = schedule.programs[rank];
      std::vector<std::int32_t>& ids = ids_.emplace_back(program.size(), -1);
      for (std::size_t k = 0; k < program.size() && problems.size() < most_named; ++k) {
        if (!is_message(program[k].op)) continue;
        const auto at = static_cast<std::int32_t>(k);
        ids[k] = enter(program[k], index.find(program[k], rank), at);
        if (ids[k] >= 0) continue;
        problems.push_back({place_in_program(schedule, rank, at),
                            "the graph has no such message at this rank, or it stands here twice",
                            "Check the schedule's programs."});
      }
    }
    if (!problems.empty()) throw UserError(problems);
    require_both_ends(schedule, index);
  }

  /// The number of the message at this place; −1 where there is none.
  std::int32_t id(int rank, std::int32_t index) const { return ids_[rank][index]; }
  Message& operator[](std::int32_t id) { return messages_[id]; }
  const Message& operator[](std::int32_t id) const { return messages_[id]; }

 private:
  /// Enters one end of a message and gives its number, or −1 where it does not fit.
  std::int32_t enter(const Instruction& i, std::int32_t number, std::int32_t index) {
    if (number < 0) return -1;
    const std::int32_t gradient = carries_gradient(i.op) ? 1 : 0, id = 2 * number + gradient;
    Message& message = messages_[id];
    std::int32_t& end = is_send(i.op) ? message.send : message.receive;
    if (end >= 0) return -1;
    end = index;
    message.route = 2 * i.edge.value() + gradient;
    return id;
  }

  /// A message with one end would block its rank for ever.
  void require_both_ends(const Schedule& schedule, const MessageIndex& index) const {
    std::vector<Problem> problems;
    for (const Message& message : messages_) {
      if ((message.send < 0) == (message.receive < 0)) continue;
      const bool sent = message.send >= 0, at_from = sent == (message.route % 2 == 0);
      const EdgeId edge(message.route / 2);
      problems.push_back(
          {place_in_program(schedule, at_from ? index.rank_from(edge) : index.rank_to(edge),
                            sent ? message.send : message.receive),
           sent ? "nobody receives it" : "nobody sends it", "Check the schedule's programs."});
      if (problems.size() == most_named) break;
    }
    if (!problems.empty()) throw UserError(problems);
  }

  std::vector<std::vector<std::int32_t>> ids_;  // [rank][instruction]
  std::vector<Message> messages_;
};

/// Every collective of a schedule. Its members are the ranks whose programs name it; where a
/// program names it several times (for several segments of its rank), only the last place counts.
class CollectiveTable {
 public:
  struct Place {
    std::int32_t rank = -1, index = -1;
  };
  struct Collective {
    double time = 0;            ///< it takes this long
    double start = 0;           ///< arrival of the last member so far
    double end = unknown_time;  ///< known once all are there
    Place latest;               ///< the member that came last
    std::int32_t missing = 0;   ///< members still to come
  };
  /// A collective where a program names it; none where a later place counts.
  struct Named {
    std::int32_t id = -1, index = -1;
  };

  /// A collective takes latency · ⌈log2(members)⌉ + the interaction's cost, or `reduction_time`.
  /// Throws UserError for collectives that the graph does not have at their rank.
  CollectiveTable(const Schedule& schedule, const CollectiveIndex& index, double reduction_time)
      : collectives_(index.size()) {
    read(schedule, index, reduction_time);
    drop_earlier_places();
    places_ = GroupedLists<Place>(collectives_.size(), [&](auto insert) {
      for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
        for (const auto& [id, k] : of_rank_[rank]) {
          if (id >= 0) insert(id, Place{static_cast<std::int32_t>(rank), k});
        }
      }
    });
    for (std::size_t id = 0; id < collectives_.size(); ++id) {
      const std::size_t members = places(static_cast<std::int32_t>(id)).size();
      const auto rounds = std::bit_width(std::max<std::size_t>(1, members) - 1);
      collectives_[id].time += schedule.graph.latency * static_cast<double>(rounds);
      collectives_[id].missing = static_cast<std::int32_t>(members);
    }
  }

  Collective& operator[](std::int32_t id) { return collectives_[id]; }
  /// The collectives that a program names, in its order.
  std::span<const Named> of(int rank) const { return of_rank_[rank]; }
  /// The members' places, by rank.
  std::span<const Place> places(std::int32_t id) const { return places_.of(id); }

 private:
  /// Reads which collective each program names, in order, and the time of each.
  void read(const Schedule& schedule, const CollectiveIndex& index, double reduction_time) {
    for (int rank = 0; rank < schedule.graph.ranks; ++rank) {
      CollectiveIndex::Reader reader(index, rank);
      std::vector<Named>& named = of_rank_.emplace_back();
      const std::vector<Instruction>& program = schedule.programs[rank];
      for (std::int32_t k = 0; k < std::ssize(program); ++k) {
        const Instruction& i = program[k];
        if (!CollectiveIndex::is_collective(i.op)) continue;
        const std::int32_t id = reader.find(i);
        if (id < 0) {
          throw UserError(place_in_program(schedule, rank, k),
                          "the graph has no such collective at this rank",
                          "Check the schedule's programs.");
        }
        named.push_back({id, k});
        const bool interacts = i.op == Op::interact;
        collectives_[id].time =
            interacts ? schedule.graph.interactions[i.interaction()].cost : reduction_time;
      }
    }
  }

  /// Keeps the last place of each collective in a program.
  void drop_earlier_places() {
    std::vector<std::size_t> seen_by(collectives_.size(), of_rank_.size());
    for (std::size_t rank = 0; rank < of_rank_.size(); ++rank) {
      for (auto named = of_rank_[rank].rbegin(); named != of_rank_[rank].rend(); ++named) {
        const bool later_counts = std::exchange(seen_by[named->id], rank) == rank;
        if (later_counts) named->id = -1;
      }
    }
  }

  std::vector<Collective> collectives_;
  std::vector<std::vector<Named>> of_rank_;
  GroupedLists<Place> places_;
};

/// The clock of the models `links` and `rendezvous`.
class NetworkClock {
 public:
  NetworkClock(const Schedule& schedule, const GraphIndex& numbers,
               const SimulationOptions& options)
      : schedule_(schedule),
        graph_(schedule.graph),
        network_(options.network),
        rendezvous_(options.model == NetworkModel::rendezvous),
        fabric_(schedule.graph, options.network),
        messages_(schedule, numbers.messages),
        collectives_(schedule, numbers.collectives, options.network.reduction_time),
        slows_down_(options.network.compute_slow_down > 1 && !fabric_.instant()),
        clocks_(schedule, true),
        ranks_(schedule.programs.size()) {}

  Timeline run() {
    run_ready();
    while (!events_.empty()) {
      now_ = events_.top().time;
      do {
        while (!events_.empty() && events_.top().time == now_) take_event();
        run_ready();
      } while (!events_.empty() && events_.top().time == now_);
      fabric_.admit(issued_, [&](const Fabric::Ticket& ticket) { start(ticket.message, now_); });
      issued_.clear();
      run_ready();
    }
    const int stuck = clocks_.stuck_rank();
    if (stuck >= 0) throw waiting_cycle(stuck);
    list_transfers();
    return std::move(clocks_.timeline());
  }

 private:
  using Cause = Timeline::Cause;
  using Place = CollectiveTable::Place;

  struct Rank {
    std::int32_t collectives = 0;  // those that its program has passed
    std::int32_t transfers = 0;    // messages under way from or to here
    // The rest is used only where transfers slow compute down:
    double wake = unknown_time;    // the event this rank waits for
    bool computes = false;         // it computes until then
    double work = 0, updated = 0;  // the work that is left at that time
  };

  enum class EventKind : std::int32_t { issue, end, wake };
  struct Event {
    double time;
    std::int32_t subject;  // the message, or the rank of a `wake`
    EventKind kind;

    bool operator<(const Event& other) const { return time > other.time; }  // earliest on top
  };

  /// Handles the earliest event.
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
    clocks_.run_ready([&](int rank) { return step(rank); });
  }

  /// Passes an instruction; false where the rank has to wait.
  bool step(int rank) {
    if (ranks_[rank].wake != unknown_time) return false;
    const Op op = clocks_[rank].instruction().op;
    if (is_compute(op)) return compute(rank);
    if (is_message(op)) return message(rank);
    if (CollectiveIndex::is_collective(op)) return collective(rank);
    clocks_[rank].pass(op == Op::opt_step ? network_.step_time : 0);
    return true;
  }

  // --- Compute ---

  /// The time alone of the next instruction and those that run as one with it.
  double work_of(int rank) const {
    const RankClock& clock = clocks_[rank];
    const std::int32_t first = clock.next(), end = clock.unit_end();
    double sum = 0;
    for (std::int32_t i = first; i < end; ++i) {
      require_segment(rank, i, clock.instruction(i));
      sum += compute_time(graph_, clock.instruction(i));
    }
    return end - first > 1 ? sum * graph_.fused_cost_factor : sum;
  }

  void require_segment(int rank, std::int32_t index, const Instruction& i) const {
    if (graph_.segments.contains(i.segment) && graph_.passes(i.segment, i.micro_batch) &&
        graph_.segments[i.segment].rank == rank) {
      return;
    }
    throw UserError(place_in_program(schedule_, rank, index),
                    "the graph has no such segment or micro-batch at this rank",
                    "Check the schedule's programs.");
  }

  /// Runs a computation at once, or begins it where its pace may change on the way.
  bool compute(int rank) {
    Rank& state = ranks_[rank];
    const double time = clocks_[rank].time();
    if (!slows_down_) {
      clocks_[rank].run_unit(time + work_of(rank));
      return true;
    }
    if (time > now_) {
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
    if (state.wake != time) return;  // the end has moved since
    state.wake = unknown_time;
    if (state.computes) clocks_[rank].run_unit(time);
    state.computes = false;
    clocks_.make_ready(rank);
  }

  /// Counts the transfers under way at a rank; a compute there changes its pace with the first and
  /// the last one.
  void count_transfer(int rank, int change) {
    Rank& state = ranks_[rank];
    const double before = pace(state);
    state.transfers += change;
    if (!state.computes || pace(state) == before) return;
    state.work -= (now_ - state.updated) / before;
    state.updated = now_;
    wake_at(rank, now_ + std::max(0.0, state.work) * pace(state));
  }

  // --- Messages ---

  /// Passes a send or receive if it does not block any more.
  bool message(int rank) {
    RankClock& clock = clocks_[rank];
    if (!clock.posted(clock.next())) post(rank);
    const bool sends = is_send(clock.instruction().op);
    if (sends && !rendezvous_) {
      clock.skip();
      return true;
    }
    const MessageTable::Message& m = messages_[messages_.id(rank, clock.next())];
    if (m.end == unknown_time) return false;
    const Fabric::Route& route = fabric_.route(m.route);
    const bool other_came_last = !rendezvous_ || m.issued > clock.posted_at();
    clock.pass_wait(sends ? m.end : m.end + route.latency, m.issued,
                    other_came_last ? other_end(m, sends) : clock.before_post());
    return true;
  }

  /// The end of a message that is not its send, or not its receive.
  Cause other_end(const MessageTable::Message& m, bool from_send) const {
    const Fabric::Route& route = fabric_.route(m.route);
    return from_send ? Cause{route.target, m.receive} : Cause{route.source, m.send};
  }

  /// Issues the message at the rank's place and those of its group.
  void post(int rank) {
    RankClock& clock = clocks_[rank];
    const std::int32_t end = clock.group_end();
    clock.post(end);
    for (std::int32_t i = clock.next(); i < end; ++i) {
      const bool sends = is_send(clock.instruction(i).op);
      if (sends && !rendezvous_) clock.stamp(i, clock.time());
      if (sends || rendezvous_) post_end(clock.time(), messages_.id(rank, i));
    }
  }

  /// Issues a message, under `rendezvous` when the second of its ends is posted.
  void post_end(double time, std::int32_t id) {
    MessageTable::Message& m = messages_[id];
    const bool first = m.issued == unknown_time;
    m.issued = first ? time : std::max(m.issued, time);
    if (first && rendezvous_) return;
    if (fabric_.instant()) return start(id, m.issued);
    events_.push({m.issued, id, EventKind::issue});
  }

  Fabric::Ticket ticket(std::int32_t id) const {
    const MessageTable::Message& m = messages_[id];
    return {m.issued, fabric_.route(m.route).source, m.send, id, m.route};
  }

  /// Starts a transfer; its end is known at once.
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

  /// Ends a transfer, which frees its link and cards.
  void end(std::int32_t id) {
    const std::int32_t index = messages_[id].route;
    fabric_.release(index);
    if (!slows_down_) return;
    count_transfer(fabric_.route(index).source, -1);
    count_transfer(fabric_.route(index).target, -1);
  }

  /// Makes a rank ready if it stands at this message.
  void unblock(int rank, std::int32_t index) {
    const RankClock& clock = clocks_[rank];
    if (clock.next() == index && clock.posted(index)) clocks_.make_ready(rank);
  }

  // --- Collectives ---

  /// Passes a collective once all its members have come.
  bool collective(int rank) {
    RankClock& clock = clocks_[rank];
    const std::int32_t id = collectives_.of(rank)[ranks_[rank].collectives].id;
    if (id < 0) {
      ++ranks_[rank].collectives;
      clock.pass(0);
      return true;
    }
    CollectiveTable::Collective& c = collectives_[id];
    if (!clock.posted(clock.next())) reach(rank, id);
    if (c.missing > 0) return false;
    ++ranks_[rank].collectives;
    clock.pass_wait(
        c.end, c.start,
        c.latest.rank == rank ? clock.before_post() : Cause{c.latest.rank, c.latest.index});
    return true;
  }

  /// Notes that a member has come; the last one starts the collective.
  void reach(int rank, std::int32_t id) {
    RankClock& clock = clocks_[rank];
    CollectiveTable::Collective& c = collectives_[id];
    clock.post(clock.next() + 1);
    if (c.latest.rank < 0 || clock.time() > c.start) {
      c.start = clock.time();
      c.latest = {rank, clock.next()};
    }
    if (--c.missing > 0) return;
    c.end = c.start + c.time;
    for (const Place& place : collectives_.places(id)) {
      if (place.rank != rank) clocks_.make_ready(place.rank);
    }
  }

  // --- The end ---

  /// The place that a blocked rank waits for.
  Place awaited(int rank) const {
    const RankClock& clock = clocks_[rank];
    const Op op = clock.instruction().op;
    if (is_message(op)) {
      const Cause cause = other_end(messages_[messages_.id(rank, clock.next())], is_send(op));
      return {cause.rank, cause.index};
    }
    const auto places = collectives_.places(collectives_.of(rank)[ranks_[rank].collectives].id);
    return *std::find_if(places.begin(), places.end(), [&](const Place& place) {
      return !clocks_[place.rank].posted(place.index);
    });
  }

  /// Every blocked rank waits for a rank that has not come, so following them comes round.
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
                           place_in_program(schedule_, member, clocks_[member].next()),
                           place_in_program(schedule_, place.rank, place.index));
    }
    return UserError(
        fmt::format("the schedule hangs with {} sends", rendezvous_ ? "rendezvous" : "buffered"),
        cycle, "Change the order of a rank, or put messages that cross into one group.");
  }

  /// Lists the times of all messages in the timeline.
  void list_transfers() {
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const std::vector<Instruction>& program = schedule_.programs[rank];
      for (std::size_t i = 0; i < program.size(); ++i) {
        if (!is_send(program[i].op)) continue;
        const MessageTable::Message& m =
            messages_[messages_.id(rank, static_cast<std::int32_t>(i))];
        clocks_.timeline().transfers.push_back({rank, m.send, m.issued, m.start, m.end});
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
  RankClocks clocks_;
  std::vector<Rank> ranks_;
  std::vector<Fabric::Ticket> issued_;  // those issued at the time now_
  std::priority_queue<Event> events_;
  double now_ = 0;
};

}  // namespace

Timeline simulate_network(const Schedule& schedule, const SimulationOptions& options) {
  if (schedule.level != ScheduleLevel::lowered) {
    throw UserError(fmt::format("model {} on a compute-only schedule", to_string(options.model)),
                    "it has no messages", "Lower the schedule first, or use the model latency.");
  }
  return NetworkClock(schedule, GraphIndex(schedule.graph), options).run();
}

}  // namespace heteroperf
