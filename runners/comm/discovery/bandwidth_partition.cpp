#include "runners/comm/discovery/bandwidth_partition.hpp"

#include <algorithm>
#include <limits>

namespace heteroperf {
namespace {

using Members = std::vector<std::size_t>;

bool is_single(const BandwidthTable& table, const Members& part) {
  return part.size() == 1 && table.is_single[part.front()];
}

double least_own(const BandwidthTable& table, const Members& part) {
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t item : part) least = std::min(least, table.own[item]);
  return least;
}

void absorb(Members& part, Members& other) {
  Members both;
  std::merge(part.begin(), part.end(), other.begin(), other.end(), std::back_inserter(both));
  part = std::move(both);
  other.clear();
}

}  // namespace

double reference(const BandwidthTable& table, const Members& a, const Members& b) {
  const double of_a = least_own(table, a), of_b = least_own(table, b);
  const bool any_single = is_single(table, a) || is_single(table, b);
  return any_single ? std::max(of_a, of_b) : std::min(of_a, of_b);
}

double best_link(const BandwidthTable& table, const Members& a, const Members& b) {
  double best = BandwidthTable::unlike;
  for (const std::size_t i : a) {
    for (const std::size_t j : b) best = std::max(best, table.between[i][j]);
  }
  return best;
}

std::vector<Members> partition(const BandwidthTable& table, double gap) {
  std::vector<Members> parts;
  for (std::size_t i = 0; i < table.size(); ++i) parts.push_back({i});
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (std::size_t a = 0; a < parts.size(); ++a) {
      for (std::size_t b = a + 1; b < parts.size(); ++b) {
        if (parts[a].empty() || parts[b].empty()) continue;
        const double link = best_link(table, parts[a], parts[b]);
        if (link < 0 || link * gap < reference(table, parts[a], parts[b])) continue;
        absorb(parts[a], parts[b]);
        has_changed = true;
      }
    }
  }
  std::erase_if(parts, [](const Members& part) { return part.empty(); });
  std::sort(parts.begin(), parts.end());
  return parts;
}

}  // namespace heteroperf
