#include "workloads/data/stored_pixels.hpp"

#include <cmath>

namespace heteroperf {

void StoredPixels::normalise_by(std::span<const std::uint32_t> images) {
  const std::size_t plane = height * width;
  const double count = static_cast<double>(plane) * static_cast<double>(images.size());
  tables.clear();
  for (std::int64_t c = 0; c < channels; ++c) {
    std::uint64_t sum = 0, squares = 0;
    for (const std::uint32_t i : images) {
      for (const std::uint64_t x : image(i).subspan(c * plane, plane)) {
        sum += x;
        squares += x * x;
      }
    }
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    const double deviation = variance > 0 ? std::sqrt(variance) : 1.0;
    std::array<float, 256>& table = tables.emplace_back();
    for (int x = 0; x < 256; ++x) table[x] = static_cast<float>((x - mean) / deviation);
  }
}

void StoredPixels::serve(std::size_t i, std::span<float> out) const {
  const std::span<const std::uint8_t> pixels = image(i);
  const std::size_t plane = pixels.size() / tables.size();
  for (std::size_t c = 0; c < tables.size(); ++c) {
    for (std::size_t k = c * plane; k < (c + 1) * plane; ++k) out[k] = tables[c][pixels[k]];
  }
}

}  // namespace heteroperf
