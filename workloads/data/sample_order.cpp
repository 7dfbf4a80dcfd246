#include "workloads/data/sample_order.hpp"

#include <algorithm>
#include <numeric>

namespace heteroperf {

SplitLists hold_out(std::span<const std::uint64_t> hashes, std::uint64_t one_in) {
  SplitLists lists;
  if (hashes.empty()) return lists;
  std::vector<std::uint64_t> sorted(hashes.begin(), hashes.end());
  const std::uint64_t held = std::max<std::uint64_t>(1, sorted.size() / one_in);
  const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(held - 1);
  std::nth_element(sorted.begin(), last, sorted.end());
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    auto& list = hashes[i] <= *last ? lists.validation : lists.train;
    list.push_back(static_cast<std::uint32_t>(i));
  }
  return lists;
}

SplitLists split_after(std::size_t train, std::size_t all) {
  SplitLists lists;
  lists.train.resize(train);
  lists.validation.resize(all - train);
  std::iota(lists.train.begin(), lists.train.end(), std::uint32_t{0});
  std::iota(lists.validation.begin(), lists.validation.end(), static_cast<std::uint32_t>(train));
  return lists;
}

}  // namespace heteroperf
