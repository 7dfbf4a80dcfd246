#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace heteroperf {

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// One list of values for each key, all in one vector, which costs two allocations however many
/// keys there are. The values of a key keep the order in which they were inserted.
template <class T>
class GroupedLists {
 public:
  GroupedLists() = default;
  /// Keys are 0 to keys − 1. `insert_all` calls its argument with every (key, value). It runs
  /// twice, first to count and then to fill, and must do the same both times.
  template <class InsertAll>
  GroupedLists(std::size_t keys, InsertAll insert_all) : offset_(keys + 1, 0) {
    insert_all([&](std::int32_t key, const T&) { ++offset_[key + 1]; });
    for (std::size_t key = 0; key < keys; ++key) offset_[key + 1] += offset_[key];
    values_.resize(offset_.back());
    std::vector<std::int32_t> place(offset_.begin(), offset_.end() - 1);
    insert_all([&](std::int32_t key, const T& value) { values_[place[key]++] = value; });
  }

  std::span<const T> of(std::int32_t key) const {
    return {values_.data() + offset_[key], values_.data() + offset_[key + 1]};
  }

  /// The lists stand one after the other; those of `key` begin at first(key) and end at first(key +
  /// 1).
  std::int32_t first(std::int32_t key) const { return offset_[key]; }
  const T& operator[](std::int32_t place) const { return values_[place]; }

 private:
  std::vector<std::int32_t> offset_;
  std::vector<T> values_;
};

/// Merges numbers into sets.
class UnionFind {
 public:
  explicit UnionFind(std::int32_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  std::int32_t find(std::int32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void unite(std::int32_t a, std::int32_t b) { parent_[find(b)] = find(a); }

 private:
  std::vector<std::int32_t> parent_;
};

}  // namespace heteroperf
