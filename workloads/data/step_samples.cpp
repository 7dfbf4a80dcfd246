// The deal of a step. Samples wait in a queue per number of images, in their order. With `t` images
// in all of `n` samples, place i should end with (i + 1)·t/n images behind it; among the waiting
// numbers the one that comes closest is taken, the smaller of two that are as close. Everything is
// compared in whole numbers, so that all ranks deal alike.
#include "workloads/data/step_samples.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "metrics/base/error.hpp"

namespace heteroperf {

StepSamples::StepSamples(const DataSource& data, std::uint64_t seed, std::uint64_t step,
                         std::uint64_t count)
    : seed_(seed),
      split_size_(data.size(Split::train)),
      first_position_(step * count),
      count_(count) {
  if (data.spec().images == 0) return;
  std::map<std::uint64_t, std::deque<std::uint64_t>> waiting;  // by images
  std::uint64_t all = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t sample = shuffled_index(seed, split_size_, first_position_ + i);
    const auto images = static_cast<std::uint64_t>(data.images(Split::train, sample));
    waiting[images].push_back(sample);
    all += images;
  }
  first_image_.push_back(0);
  for (std::uint64_t i = 0; i < count; ++i) {
    // Both sides are multiplied by the number of samples.
    const std::uint64_t wanted = (i + 1) * all;
    const auto distance = [&](const auto& queue) {
      const std::uint64_t got = (first_image_.back() + queue.first) * count;
      return got > wanted ? got - wanted : wanted - got;
    };
    const auto nearest = std::ranges::min_element(waiting, {}, distance);
    first_image_.push_back(first_image_.back() + nearest->first);
    dealt_.push_back(nearest->second.front());
    nearest->second.pop_front();
    if (nearest->second.empty()) waiting.erase(nearest);
  }
}

std::uint64_t StepSamples::operator[](std::uint64_t i) const {
  HETEROPERF_EXPECT(i < count_);
  return ragged() ? dealt_[i] : shuffled_index(seed_, split_size_, first_position_ + i);
}

std::vector<std::int64_t> validation_images(const DataSource& data, std::uint64_t first,
                                            std::int64_t count) {
  std::vector<std::int64_t> images;
  if (data.spec().images == 0) return images;
  images.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t sample = first + static_cast<std::uint64_t>(i);
    images.push_back(images.back() + data.images(Split::validation, sample));
  }
  return images;
}

}  // namespace heteroperf
