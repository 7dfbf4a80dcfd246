// An example: rank 0 has to send to rank 1, which has to send to rank 2, which has nothing to send.
// flush(0) reaches 1 and then 2; rank 1 is a component of its own and sends first, then rank 0. Had
// rank 1 to send to rank 0 instead, both would be one component and send to each other in a group.

#include "runners/schedule/lower/exchange.hpp"

#include <algorithm>

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

Exchange::Exchange(int ranks)
    : outbox_(ranks),
      order_(ranks, 0),
      low_(order_),
      component_of_(order_),
      messages_of_(ranks, 0) {}

/// Opens a frame of the depth-first search.
void Exchange::visit(int rank) {
  order_[rank] = low_[rank] = counter_++;
  stack_.push_back(rank);
  frames_.push_back({rank, 0});
}

/// Messages to a member of the component go into a group, the others alone: their targets have sent
/// everything already.
void Exchange::take_component(int rank) {
  component_.clear();
  const std::int64_t number = order_[rank];
  int member = -1;
  do {
    member = stack_.back();
    stack_.pop_back();
    component_of_[member] = number;
    component_.push_back(member);
  } while (member != rank);
  std::sort(component_.begin(), component_.end());
  alone_.clear();
  grouped_.clear();
  for (const int source : component_) {
    for (const Parcel& parcel : outbox_[source]) {
      const bool inside = component_of_[parcel.target] == number && sending(parcel.target);
      (inside ? grouped_ : alone_).push_back({source, parcel});
    }
  }
  cut_groups();
}

/// Makes one group of all; where that is too much for a rank, one or more for each two ranks.
void Exchange::cut_groups() {
  group_ends_.clear();
  if (grouped_.empty()) return;
  bool fits = true;
  for (const Sent& sent : grouped_) {
    for (const int rank : {sent.source, sent.parcel.target}) {
      fits = ++messages_of_[rank] <= most_group_messages && fits;
    }
  }
  for (const int rank : component_) messages_of_[rank] = 0;
  if (fits) return group_ends_.push_back(grouped_.size());
  const auto pair = [](const Sent& s) { return std::minmax(s.source, s.parcel.target); };
  std::stable_sort(grouped_.begin(), grouped_.end(), [&](const Sent& a, const Sent& b) {
    return std::pair<int, int>(pair(a)) < std::pair<int, int>(pair(b));
  });
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= grouped_.size(); ++i) {
    if (i < grouped_.size() && i - begin < most_group_messages &&
        std::pair<int, int>(pair(grouped_[i])) == std::pair<int, int>(pair(grouped_[begin]))) {
      continue;
    }
    group_ends_.push_back(i);
    begin = i;
  }
}

}  // namespace heteroperf
