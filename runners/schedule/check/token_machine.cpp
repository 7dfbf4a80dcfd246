// Tokens move along the streams: an event counts how many streams have still to arrive at it and
// how many prerequisites have still to end (`missing_`), and ends when that is zero. Every stream
// at it then moves on. The order in which events end does not matter, as none undoes another.
//
// Streams that are left wait for streams that come to their event later, or that have to end a
// prerequisite of it. A breadth-first search from every stream finds the shortest way back to
// itself in that graph.

#include "runners/schedule/check/token_machine.hpp"

#include <algorithm>

namespace heteroperf {

bool TokenMachine::run() {
  items_ = GroupedLists<Item>(streams_, [&](auto insert) {
    for (const Item& item : appended_) insert(item.stream, item);
  });
  dependents_ = GroupedLists<std::int32_t>(missing_.size(), [&](auto insert) {
    for (const Requirement& r : requirements_) insert(r.prerequisite, r.event);
  });
  for (std::int32_t stream = 0; stream < streams_; ++stream) at_.push_back(items_.first(stream));
  first_waiting_.assign(missing_.size(), -1);
  next_waiting_.assign(streams_, -1);
  for (std::int32_t stream = 0; stream < streams_; ++stream) arrive(stream);
  while (!ready_.empty()) {
    const std::int32_t event = ready_.back();
    ready_.pop_back();
    end(event);
  }
  for (std::int32_t stream = 0; stream < streams_; ++stream) {
    if (at_[stream] < items_.first(stream + 1)) return false;
  }
  return true;
}

/// A stream stands at its next event, which it is then missing no more.
void TokenMachine::arrive(std::int32_t stream) {
  if (at_[stream] == items_.first(stream + 1)) return;
  const std::int32_t event = items_[at_[stream]].event;
  next_waiting_[stream] = first_waiting_[event];
  first_waiting_[event] = stream;
  if (--missing_[event] == 0) ready_.push_back(event);
}

/// Lets the dependents of an event and the streams at it move on.
void TokenMachine::end(std::int32_t event) {
  for (const std::int32_t dependent : dependents_.of(event)) {
    if (--missing_[dependent] == 0) ready_.push_back(dependent);
  }
  std::int32_t stream = first_waiting_[event];
  while (stream >= 0) {
    const std::int32_t next = next_waiting_[stream];
    ++at_[stream];
    arrive(stream);
    stream = next;
  }
}

/// The graph that says who waits for whom among the streams that did not end.
class TokenMachine::Waiting {
 public:
  explicit Waiting(const TokenMachine& machine) : machine_(machine) {
    for (std::int32_t s = 0; s < machine.streams_; ++s) {
      if (machine.at_[s] < machine.items_.first(s + 1)) stuck_.push_back(s);
    }
    const std::size_t events = machine.missing_.size();
    items_ = GroupedLists<std::int32_t>(events, [&](auto insert) {
      for (const std::int32_t s : stuck_) {
        for (std::int32_t k = machine.at_[s]; k < machine.items_.first(s + 1); ++k) {
          insert(machine.items_[k].event, k);
        }
      }
    });
    needs_ = GroupedLists<std::int32_t>(events, [&](auto insert) {
      for (const Requirement& r : machine.requirements_) {
        if (machine.missing_[r.prerequisite] > 0) insert(r.event, r.prerequisite);
      }
    });
    targets_.resize(machine.streams_);
    for (const std::int32_t stream : stuck_) find_targets(stream);
  }

  std::vector<Standing> shortest_cycle() {
    parent_.assign(targets_.size(), -1);
    seen_.assign(targets_.size(), -1);
    for (const std::int32_t start : stuck_) {
      if (best_.size() == 1 || steps_ > most_steps) break;
      search(start);
    }
    if (best_.empty()) return {dead_end()};
    std::vector<Standing> cycle;
    for (std::size_t i = 0; i < best_.size(); ++i) {
      cycle.push_back({place(best_[i]), place(best_[(i + 1) % best_.size()]).rank});
    }
    return cycle;
  }

 private:
  static constexpr long long most_steps = 20'000'000;

  Place place(std::int32_t stream) const { return machine_.items_[machine_.at_[stream]].place; }

  /// Finds the streams that must move before this one can.
  void find_targets(std::int32_t stream) {
    const std::int32_t here = machine_.at_[stream], event = machine_.items_[here].event;
    std::vector<std::int32_t>& targets = targets_[stream];
    for (const std::int32_t k : items_.of(event)) {
      const std::int32_t sharer = machine_.items_[k].stream;
      if (k != machine_.at_[sharer]) targets.push_back(sharer);
    }
    for (const std::int32_t needed : needs_.of(event)) {
      for (const std::int32_t k : items_.of(needed)) targets.push_back(machine_.items_[k].stream);
    }
    sort_unique(targets);
  }

  /// Searches breadth first for a shorter way back to the start than the best so far.
  void search(std::int32_t start) {
    std::vector<std::int32_t> level{start}, next;
    seen_[start] = start;
    for (std::size_t depth = 1; !level.empty(); ++depth, level.swap(next)) {
      if (!best_.empty() && depth >= best_.size()) return;
      next.clear();
      for (const std::int32_t stream : level) {
        steps_ += 1 + static_cast<long long>(targets_[stream].size());
        for (const std::int32_t target : targets_[stream]) {
          if (target == start) return keep(start, stream);
          if (seen_[target] == start) continue;
          seen_[target] = start;
          parent_[target] = stream;
          next.push_back(target);
        }
      }
      if (steps_ > most_steps && !best_.empty()) return;
    }
  }

  /// Remembers the cycle from `start` over the parents of `last`.
  void keep(std::int32_t start, std::int32_t last) {
    best_.clear();
    for (std::int32_t stream = last; stream != start; stream = parent_[stream]) {
      best_.push_back(stream);
    }
    best_.push_back(start);
    std::reverse(best_.begin(), best_.end());
  }

  /// A stream that waits for no stream; without a cycle there must be one, but for the step limit.
  Standing dead_end() const {
    for (const std::int32_t stream : stuck_) {
      if (targets_[stream].empty()) return {place(stream), -1};
    }
    return {place(stuck_.front()), -1};
  }

  const TokenMachine& machine_;
  std::vector<std::int32_t> stuck_;
  GroupedLists<std::int32_t> items_, needs_;  // by event: items and prerequisites that did not end
  std::vector<std::vector<std::int32_t>> targets_;  // [stream]
  std::vector<std::int32_t> parent_, seen_, best_;  // [stream]; seen by the search from there
  long long steps_ = 0;
};

std::vector<TokenMachine::Standing> TokenMachine::shortest_cycle() const {
  return Waiting(*this).shortest_cycle();
}

}  // namespace heteroperf
