#include "runners/schedule/check/token_machine.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

/// Where the values of each key start in a list sorted by key; `key_of` counts them.
template <class List, class KeyOf>
std::vector<std::int32_t> offsets(std::size_t keys, const List& list, KeyOf key_of) {
  std::vector<std::int32_t> offset(keys + 1, 0);
  for (const auto& entry : list) ++offset[key_of(entry) + 1];
  for (std::size_t k = 0; k < keys; ++k) offset[k + 1] += offset[k];
  return offset;
}

template <class List, class KeyOf>
void sort_by(const std::vector<std::int32_t>& offset, List& list, KeyOf key_of) {
  List sorted(list.size());
  std::vector<std::int32_t> place(offset.begin(), offset.end() - 1);
  for (const auto& entry : list) sorted[place[key_of(entry)]++] = entry;
  list = std::move(sorted);
}

}  // namespace

void TokenMachine::sort_items() {
  const auto stream = [](const Item& item) { return item.stream; };
  first_item_ = offsets(static_cast<std::size_t>(streams_), items_, stream);
  if (!std::is_sorted(items_.begin(), items_.end(),
                      [](const Item& a, const Item& b) { return a.stream < b.stream; })) {
    sort_by(first_item_, items_, stream);
  }
}

void TokenMachine::sort_requirements() {
  const auto prerequisite = [](const Requirement& r) { return r.prerequisite; };
  dependents_ = offsets(missing_.size(), requirements_, prerequisite);
  sort_by(dependents_, requirements_, prerequisite);
}

bool TokenMachine::run() {
  sort_items();
  sort_requirements();
  at_.assign(first_item_.begin(), first_item_.end() - 1);
  first_waiting_.assign(missing_.size(), -1);
  next_waiting_.assign(static_cast<std::size_t>(streams_), -1);
  for (std::int32_t stream = 0; stream < streams_; ++stream) arrive(stream);
  while (!ready_.empty()) {
    const std::int32_t event = ready_.back();
    ready_.pop_back();
    end(event);
  }
  for (std::int32_t stream = 0; stream < streams_; ++stream) {
    if (at_[stream] < first_item_[stream + 1]) return false;
  }
  return true;
}

void TokenMachine::arrive(std::int32_t stream) {
  if (at_[stream] == first_item_[stream + 1]) return;
  const std::int32_t event = items_[at_[stream]].event;
  next_waiting_[stream] = first_waiting_[event];
  first_waiting_[event] = stream;
  if (--missing_[event] == 0) ready_.push_back(event);
}

void TokenMachine::end(std::int32_t event) {
  for (std::int32_t k = dependents_[event]; k < dependents_[event + 1]; ++k) {
    const std::int32_t dependent = requirements_[k].event;
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

/// Who waits for whom among the streams that did not end.
class TokenMachine::Waiting {
 public:
  explicit Waiting(const TokenMachine& machine) : machine_(machine) {
    for (std::int32_t s = 0; s < machine.streams_; ++s) {
      if (machine.at_[s] < machine.first_item_[s + 1]) stuck_.push_back(s);
    }
    index_events();
    targets_.resize(static_cast<std::size_t>(machine.streams_));
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

  /// Unended items and requirements, by event.
  void index_events() {
    const std::size_t events = machine_.missing_.size();
    for (const std::int32_t s : stuck_) {
      for (std::int32_t k = machine_.at_[s]; k < machine_.first_item_[s + 1]; ++k) {
        items_.push_back(k);
      }
    }
    const auto event_of = [&](std::int32_t k) { return machine_.items_[k].event; };
    first_item_ = offsets(events, items_, event_of);
    sort_by(first_item_, items_, event_of);
    for (const Requirement& r : machine_.requirements_) {
      if (machine_.missing_[r.prerequisite] > 0) needs_.push_back(r);
    }
    const auto dependent_of = [](const Requirement& r) { return r.event; };
    first_need_ = offsets(events, needs_, dependent_of);
    sort_by(first_need_, needs_, dependent_of);
  }

  void find_targets(std::int32_t stream) {
    const std::int32_t here = machine_.at_[stream], event = machine_.items_[here].event;
    std::vector<std::int32_t>& targets = targets_[stream];
    for (std::int32_t k = first_item_[event]; k < first_item_[event + 1]; ++k) {
      const std::int32_t other = machine_.items_[items_[k]].stream;
      if (items_[k] != machine_.at_[other]) targets.push_back(other);
    }
    for (std::int32_t n = first_need_[event]; n < first_need_[event + 1]; ++n) {
      const std::int32_t needed = needs_[n].prerequisite;
      for (std::int32_t k = first_item_[needed]; k < first_item_[needed + 1]; ++k) {
        targets.push_back(machine_.items_[items_[k]].stream);
      }
    }
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  }

  /// Breadth first, for a shorter way back to the start than the best so far.
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

  void keep(std::int32_t start, std::int32_t last) {
    best_.clear();
    for (std::int32_t stream = last; stream != start; stream = parent_[stream]) {
      best_.push_back(stream);
    }
    best_.push_back(start);
    std::reverse(best_.begin(), best_.end());
  }

  Standing dead_end() const {
    for (const std::int32_t stream : stuck_) {
      if (targets_[stream].empty()) return {place(stream), -1};
    }
    return {place(stuck_.front()), -1};
  }

  const TokenMachine& machine_;
  std::vector<std::int32_t> stuck_, items_, first_item_, first_need_;
  std::vector<Requirement> needs_;
  std::vector<std::vector<std::int32_t>> targets_;  // [stream]
  std::vector<std::int32_t> parent_, seen_, best_;  // [stream]; seen by the search from there
  long long steps_ = 0;
};

std::vector<TokenMachine::Standing> TokenMachine::shortest_cycle() const {
  return Waiting(*this).shortest_cycle();
}

}  // namespace heteroperf
