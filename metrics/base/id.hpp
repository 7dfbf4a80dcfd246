#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heteroperf {

/// A small integer that names one thing (a rank, a node of a graph) and is its place in the lists
/// of such things. A literal may stand for it; a number that the program computes is made an id in
/// words, and ids of two kinds never mix.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  template <std::same_as<int> Literal>
  consteval Id(Literal value) : value_(value) {}
  constexpr explicit Id(std::int32_t value) : value_(value) {}
  template <std::integral Place>
  constexpr explicit Id(Place place) : value_(static_cast<std::int32_t>(place)) {}
  /// The id of nothing, less than all others.
  static constexpr Id none() { return Id(-1); }

  constexpr std::int32_t value() const { return value_; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }

  constexpr Id& operator++() { return ++value_, *this; }
  constexpr Id operator++(int) { return Id(value_++); }
  friend constexpr Id operator+(Id id, std::int32_t steps) { return Id(id.value_ + steps); }
  friend constexpr Id operator-(Id id, std::int32_t steps) { return Id(id.value_ - steps); }
  friend constexpr std::int32_t operator-(Id a, Id b) { return a.value_ - b.value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  std::int32_t value_ = 0;
};

using RankId = Id<struct RankTag>;
using NodeId = Id<struct NodeTag>;

/// The ids from `first` to before `last`, to loop over.
template <class I>
struct IdRange {
  struct Iterator {
    using value_type = I;
    using difference_type = std::int32_t;
    constexpr I operator*() const { return id; }
    constexpr Iterator& operator++() { return ++id, *this; }
    constexpr Iterator operator++(int) { return {id++}; }
    friend constexpr bool operator==(Iterator, Iterator) = default;
    I id;
  };
  constexpr Iterator begin() const { return {first}; }
  constexpr Iterator end() const { return {last}; }
  I first, last;
};
/// The first `count` ids.
template <class I>
constexpr IdRange<I> first_ids(std::integral auto count) {
  return {I(), I(static_cast<std::int32_t>(count))};
}

/// A vector of which every element belongs to an id. Only that kind of id is taken as its place.
template <class I, class T>
class IdVector : public std::vector<T> {
 public:
  using Base = std::vector<T>;
  using Base::Base;
  IdVector(Base values) : Base(std::move(values)) {}

  typename Base::reference operator[](I id) { return Base::operator[](id.index()); }
  typename Base::const_reference operator[](I id) const { return Base::operator[](id.index()); }
  typename Base::reference at(I id) { return Base::at(id.index()); }
  typename Base::const_reference at(I id) const { return Base::at(id.index()); }
  IdRange<I> ids() const { return first_ids<I>(this->size()); }
  bool contains(I id) const { return id.index() < this->size(); }
};

}  // namespace heteroperf
