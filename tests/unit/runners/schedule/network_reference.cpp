#include "tests/unit/runners/schedule/network_reference.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace heteroperf {
namespace {

struct SentMessage {
  int source = -1, target = -1, send = -1;
  double seconds = 0;
  bool between_nodes = false;
  int posts = 0;
  double issued = -1, start = -1, end = -1;
};
using Key = std::tuple<bool, EdgeId, MicroBatchId>;  // bool: a gradient

Key key(const Instruction& i) {
  return {i.op == Op::send_grad || i.op == Op::recv_grad, i.edge, i.micro_batch};
}

class TickClock {
 public:
  TickClock(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        network_(options.network),
        rendezvous_(options.model == NetworkModel::rendezvous) {
    const std::size_t ranks = schedule.programs.size();
    next_.assign(ranks, 0);
    posted_.assign(ranks, 0);
    begun_.assign(ranks, -1);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      timeline_.spans.emplace_back(schedule.programs[rank].size());
      for (std::size_t i = 0; i < schedule.programs[rank].size(); ++i) add(rank, i);
    }
  }

  std::optional<Timeline> run() {
    double last_change = 0;
    for (now_ = 0; !finished(); ++now_) {
      const bool ran = run_ranks(), started = start_messages();
      if (ran || started) last_change = now_;
      if (now_ > last_change + 1000) return {};
    }
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      for (const Instruction& i : schedule_.programs[rank]) {
        if (!is_send(i.op)) continue;
        const SentMessage& m = messages_[key(i)];
        timeline_.transfers.push_back({m.source, m.send, m.issued, m.start, m.end});
      }
    }
    return timeline_;
  }

 private:
  void add(std::size_t rank, std::size_t index) {
    const Instruction& i = schedule_.programs[rank][index];
    if (!is_send(i.op)) return;
    SentMessage& m = messages_[key(i)];
    m.source = static_cast<int>(rank);
    m.target = i.peer;
    m.send = static_cast<int>(index);
    m.between_nodes = network_.card_bandwidth > 0 && network_.node[rank] != network_.node[i.peer];
    double bandwidth = network_.bandwidth;
    if (m.between_nodes) bandwidth = std::min(bandwidth, network_.card_bandwidth);
    m.seconds = std::round(schedule_.graph.edges[i.edge].bytes / bandwidth);
  }

  bool finished() const {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      if (next_[rank] < schedule_.programs[rank].size()) return false;
    }
    return std::all_of(messages_.begin(), messages_.end(),
                       [](const auto& entry) { return entry.second.start >= 0; });
  }

  bool run_ranks() {
    bool any = false;
    for (std::size_t rank = 0; rank < next_.size(); ++rank) {
      while (next_[rank] < schedule_.programs[rank].size() && pass(rank)) any = true;
    }
    return any;
  }

  bool pass(std::size_t rank) {
    const Instruction& i = schedule_.programs[rank][next_[rank]];
    if (is_compute(i.op)) {
      if (begun_[rank] < 0) begun_[rank] = now_;
      const Segment& s = schedule_.graph.segments[i.segment];
      const double cost = i.op == Op::forward ? s.forward : s.input_gradient + s.weight_gradient;
      if (now_ < begun_[rank] + cost) return false;
      timeline_.spans[rank][next_[rank]++] = {begun_[rank], now_};
      begun_[rank] = -1;
      return true;
    }
    if (posted_[rank] <= next_[rank]) post(rank);
    const SentMessage& m = messages_[key(i)];
    const double latency = is_send(i.op) ? 0 : schedule_.graph.latency;
    const bool waits = is_receive(i.op) || rendezvous_;
    if (waits && (m.end < 0 || now_ < m.end + latency)) return false;
    ++next_[rank];
    return true;
  }

  void post(std::size_t rank) {
    const std::vector<Instruction>& program = schedule_.programs[rank];
    const int group = program[next_[rank]].group;
    std::size_t i = next_[rank];
    do {
      SentMessage& m = messages_[key(program[i])];
      if (is_send(program[i].op) || rendezvous_) ++m.posts;
      if (m.posts == (rendezvous_ ? 2 : 1) && m.issued < 0) m.issued = now_;
      ++i;
    } while (group >= 0 && i < program.size() && program[i].group == group);
    posted_[rank] = i;
  }

  int busy(const SentMessage& m, bool card_of_source, bool cards) const {
    int count = 0;
    for (const auto& [_, other] : messages_) {
      if (other.start < 0 || other.end <= now_) continue;
      if (cards) {
        if (!other.between_nodes) continue;
        const int card = network_.card[card_of_source ? m.source : m.target];
        count += network_.card[other.source] == card || network_.card[other.target] == card;
      } else {
        count += other.source == m.source && other.target == m.target;
        count += !network_.full_duplex && other.source == m.target && other.target == m.source;
      }
    }
    return count;
  }

  bool start_messages() {
    std::vector<SentMessage*> waiting;
    for (auto& [_, m] : messages_) {
      if (m.issued >= 0 && m.start < 0) waiting.push_back(&m);
    }
    std::sort(waiting.begin(), waiting.end(), [](const SentMessage* a, const SentMessage* b) {
      return std::tie(a->issued, a->source, a->send) < std::tie(b->issued, b->source, b->send);
    });
    bool any = false;
    for (SentMessage* m : waiting) {
      if (busy(*m, false, false) >= network_.capacity) continue;
      if (m->between_nodes && busy(*m, true, true) + busy(*m, false, true) > 0) continue;
      m->start = now_;
      m->end = now_ + m->seconds;
      any = true;
    }
    return any;
  }

  const Schedule& schedule_;
  const Network& network_;
  bool rendezvous_;
  std::map<Key, SentMessage> messages_;
  std::vector<std::size_t> next_, posted_;
  std::vector<double> begun_;
  double now_ = 0;
  Timeline timeline_;
};

}  // namespace

std::optional<Timeline> count_ticks(const Schedule& schedule, const SimulationOptions& options) {
  return TickClock(schedule, options).run();
}

}  // namespace heteroperf
