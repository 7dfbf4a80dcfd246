#include "workloads/data/token_windows.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "metrics/base/hash.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t block_key = 0x626c6f636b;
constexpr std::uint64_t most_windows_per_block = 16, blocks_wanted = 20, held_out_window_in = 10;

/// Reads a number of fixed width in little-endian order, on any machine.
template <int bytes_each>
std::int64_t little_endian(const std::byte* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < bytes_each; ++i) value |= std::to_integer<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

TokenWindows::TokenWindows(const std::string& kind, const std::string& path, Width width,
                           const SampleSpec& wanted)
    : kind_(kind), path_(path), file_(path), width_(width) {
  HETEROPERF_EXPECT(wanted.length > 0);
  spec_ = {.kind = SampleKind::tokens, .length = wanted.length};
  check_contents(wanted.classes);
  cut_into_blocks();
  Hash128 hash("token windows 1");
  hash.update(width_).update(spec_.length).update(spec_.classes).update(file_.bytes());
  fingerprint_ = hash.hex();
}

void TokenWindows::check_contents(std::int64_t wanted_classes) {
  const std::size_t bytes = file_.bytes().size(), width = static_cast<std::size_t>(width_);
  if (bytes % width != 0) {
    throw UserError(
        fmt::format("token file '{}' has {} bytes", path_, bytes),
        fmt::format("tokens of {} bytes each need a multiple of {}", width, width),
        "Write it as raw little-endian integers, .u16 or .bin for 16 bits and .u32 for 32.");
  }
  tokens_ = bytes / width;
  const auto least = static_cast<std::uint64_t>(spec_.length) + 1;
  if (tokens_ / 2 < least) {
    throw UserError(
        fmt::format("'{}' holds {} tokens", path_, tokens_),
        fmt::format("a context of {} needs {} for one training and one validation window",
                    spec_.length, 2 * least),
        "Use a longer file or a model with a shorter context.");
  }
  check_ids(wanted_classes);
}

void TokenWindows::check_ids(std::int64_t wanted_classes) {
  if (width_ == Width::one_byte) {
    spec_.classes = wanted_classes == 0 ? 256 : wanted_classes;
    if (spec_.classes >= 256) return;
    throw UserError(
        fmt::format("a vocabulary of {} cannot hold the bytes of '{}'", spec_.classes, path_),
        "byte-level text needs at least 256", "Use a model with a larger vocabulary.");
  }
  std::int64_t highest = 0;
  for (std::uint64_t i = 0; i < tokens_; ++i) {
    highest = std::max(highest, token(i));
    if (wanted_classes == 0 || token(i) < wanted_classes) continue;
    throw UserError(fmt::format("token {} of '{}' is {}", i, path_, token(i)),
                    fmt::format("the model's vocabulary has {} entries, byte offset {}",
                                wanted_classes, i * static_cast<std::uint64_t>(width_)),
                    "Use the tokenizer that belongs to the model, or the right width "
                    "(.u16 or .bin: 16 bits, .u32: 32).");
  }
  spec_.classes = wanted_classes == 0 ? highest + 1 : wanted_classes;
}

void TokenWindows::cut_into_blocks() {
  const auto length = static_cast<std::uint64_t>(spec_.length);
  const std::uint64_t windows =
      std::clamp<std::uint64_t>(tokens_ / (blocks_wanted * length), 1, most_windows_per_block);
  const std::uint64_t blocks = tokens_ / (windows * length + 1);
  HETEROPERF_ENSURE(blocks >= 2 && blocks < (std::uint64_t{1} << 32));
  block_tokens_ = tokens_ / blocks;
  std::vector<std::uint64_t> hashes(blocks);
  for (std::uint64_t b = 0; b < blocks; ++b) hashes[b] = random_bits(block_key, b);
  blocks_ = hold_out(hashes, held_out_window_in);
}

std::uint64_t TokenWindows::windows_per_block(Split split) const {
  const auto length = static_cast<std::uint64_t>(spec_.length);
  return split == Split::train ? block_tokens_ - length : (block_tokens_ - 1) / length;
}

std::uint64_t TokenWindows::size(Split split) const {
  return blocks_[split].size() * windows_per_block(split);
}

std::uint64_t TokenWindows::start_of(Split split, std::uint64_t index) const {
  HETEROPERF_EXPECT(index < size(split));
  const std::uint64_t per_block = windows_per_block(split);
  const std::uint64_t stride = split == Split::train ? 1 : static_cast<std::uint64_t>(spec_.length);
  return blocks_[split][index / per_block] * block_tokens_ + index % per_block * stride;
}

std::int64_t TokenWindows::token(std::uint64_t position) const {
  const std::byte* data = file_.bytes().data();
  if (width_ == Width::one_byte) return little_endian<1>(data + position);
  if (width_ == Width::two_bytes) return little_endian<2>(data + 2 * position);
  return little_endian<4>(data + 4 * position);
}

void TokenWindows::read(Split split, std::uint64_t index, SampleView out) const {
  HETEROPERF_EXPECT(std::ssize(out.tokens) == spec_.length);
  HETEROPERF_EXPECT(out.targets.size() == out.tokens.size());
  const std::uint64_t start = start_of(split, index);
  out.tokens[0] = token(start);
  for (std::size_t t = 1; t < out.tokens.size(); ++t) {
    out.tokens[t] = out.targets[t - 1] = token(start + t);
  }
  out.targets.back() = token(start + out.tokens.size());
}

std::string TokenWindows::description() const {
  return fmt::format(
      "{}:{}: {} tokens, vocabulary {}, length {}, {} training and {} validation "
      "windows ({} of {} blocks held out)",
      kind_, path_, tokens_, spec_.classes, spec_.length, size(Split::train),
      size(Split::validation), blocks_.validation.size(),
      blocks_.validation.size() + blocks_.train.size());
}

}  // namespace heteroperf
