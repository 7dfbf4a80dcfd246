#include "workloads/data/stored_images.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t held_out_one_in = 6;

}  // namespace

std::span<const std::uint8_t> LabelledImages::image(std::size_t i) const {
  return std::span(pixels).subspan(i * bytes_per_image(), bytes_per_image());
}

void LabelledImages::append(const LabelledImages& other) {
  HETEROPERF_EXPECT(channels == other.channels && height == other.height && width == other.width);
  pixels.insert(pixels.end(), other.pixels.begin(), other.pixels.end());
  labels.insert(labels.end(), other.labels.begin(), other.labels.end());
}

SplitLists hold_out_images(const LabelledImages& images) {
  std::vector<std::uint64_t> hashes(images.labels.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    hashes[i] = Hash128("held-out image").update(std::as_bytes(images.image(i))).high();
  }
  return hold_out(hashes, held_out_one_in);
}

StoredImages::StoredImages(std::string name, LabelledImages images, SplitLists lists,
                           std::int64_t classes)
    : name_(std::move(name)), images_(std::move(images)), lists_(std::move(lists)) {
  if (lists_.train.empty() || lists_.validation.empty()) {
    throw UserError(fmt::format("'{}' leaves {} images for training and {} for validation", name_,
                                lists_.train.size(), lists_.validation.size()),
                    "both need at least one, and equal images stay together",
                    "Use a larger data set.");
  }
  spec_ = {.kind = InputKind::images,
           .channels = images_.channels,
           .height = images_.height,
           .width = images_.width,
           .classes = classes};
  fill_tables();
  fingerprint_ = hash_contents();
}

const std::vector<std::uint32_t>& StoredImages::numbers(Split split) const {
  return split == Split::train ? lists_.train : lists_.validation;
}

void StoredImages::fill_tables() {
  const auto plane = static_cast<std::size_t>(spec_.height * spec_.width);
  const double count = static_cast<double>(plane) * static_cast<double>(lists_.train.size());
  for (std::size_t c = 0; c < static_cast<std::size_t>(spec_.channels); ++c) {
    std::uint64_t sum = 0, squares = 0;
    for (std::uint32_t i : lists_.train) {
      for (std::uint64_t x : images_.image(i).subspan(c * plane, plane)) {
        sum += x;
        squares += x * x;
      }
    }
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    const double deviation = variance > 0 ? std::sqrt(variance) : 1.0;
    std::array<float, 256>& table = tables_.emplace_back();
    for (int x = 0; x < 256; ++x) {
      table[static_cast<std::size_t>(x)] = static_cast<float>((x - mean) / deviation);
    }
  }
}

void StoredImages::read(Split split, std::uint64_t index, SampleView out) const {
  HETEROPERF_EXPECT(index < size(split));
  HETEROPERF_EXPECT(out.pixels.size() == images_.bytes_per_image() && out.targets.size() == 1);
  const std::uint32_t number = numbers(split)[index];
  const std::span<const std::uint8_t> image = images_.image(number);
  const auto plane = static_cast<std::size_t>(spec_.height * spec_.width);
  for (std::size_t c = 0; c < tables_.size(); ++c) {
    for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) out.pixels[i] = tables_[c][image[i]];
  }
  out.targets[0] = images_.labels[number];
}

std::string StoredImages::description() const {
  return fmt::format("{}: {}×{}×{}, {} classes, {} training and {} validation images", name_,
                     spec_.channels, spec_.height, spec_.width, spec_.classes, lists_.train.size(),
                     lists_.validation.size());
}

std::string StoredImages::hash_contents() const {
  Hash128 hash("stored images 1");
  hash.update(spec_.channels).update(spec_.height).update(spec_.width).update(spec_.classes);
  hash.update(std::as_bytes(std::span(images_.pixels)));
  hash.update(std::as_bytes(std::span(images_.labels)));
  for (Split split : {Split::train, Split::validation}) {
    hash.update(std::as_bytes(std::span(numbers(split))));
  }
  return hash.hex();
}

}  // namespace heteroperf
