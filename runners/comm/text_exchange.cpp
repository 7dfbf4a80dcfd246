#include "runners/comm/text_exchange.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "metrics/base/error.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {
namespace {

/// More is no text of this program.
constexpr std::int64_t longest_text = 1 << 24;

}  // namespace

std::string share_text(Communicator& group, std::string text) {
  auto size = static_cast<std::int64_t>(text.size());
  group.broadcast(std::span(&size, 1), RankId(0));
  text.resize(static_cast<std::size_t>(size));
  group.broadcast(MutableBuffer(text.data(), text.size(), DataType::u8), RankId(0));
  return text;
}

std::vector<std::string> gather_texts(Communicator& group, const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(ranks);
  group.all_gather(std::span(&length, 1), std::span<std::int64_t>(lengths));
  for (std::size_t r = 0; r < ranks; ++r) {
    if (lengths[r] >= 0 && lengths[r] <= longest_text) continue;
    throw SystemError(fmt::format("rank {} sends a text of {} bytes", r, lengths[r]),
                      fmt::format("at most {}", longest_text),
                      "Start the same version of the program on every host.");
  }
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());
  std::string all(total_of(counts), '\0');
  group.all_gather({mine.data(), mine.size(), DataType::u8}, {all.data(), all.size(), DataType::u8},
                   counts);
  std::vector<std::string> texts;
  for_each_block(counts, [&](std::size_t, Slice text) {
    texts.push_back(all.substr(text.begin, text.count));
  });
  return texts;
}

}  // namespace heteroperf
