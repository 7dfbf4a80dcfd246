#pragma once

#include "workloads/data/data_source.hpp"
#include "workloads/data/input_file.hpp"
#include "workloads/data/sample_order.hpp"

namespace heteroperf {

/// Windows of length + 1 tokens over a file of fixed-width little-endian tokens (bytes of a text,
/// or 16- or 32-bit ids). The first `length` tokens are the sample, the last `length` its targets.
///
/// The file is cut into equal blocks of about 16 windows (fewer for a small file, at least 20
/// blocks where it suffices). A tenth of the blocks, those with the lowest keyed hash of their
/// number, is the validation split. No window leaves its block, so the splits share no position of
/// the file. Training windows start at every position of their block that leaves room; validation
/// windows lie end to end, so each position is a target once.
class TokenWindows : public DataSource {
 public:
  enum class Width { one_byte = 1, two_bytes = 2, four_bytes = 4 };

  /// `wanted.length` is above 0. `wanted.classes` is the vocabulary; 0 stands for 256 in bytes,
  /// else for one more than the highest id. Throws UserError when the file is empty, ends within a
  /// token, is shorter than two windows, or holds an id outside the vocabulary (naming its
  /// position).
  TokenWindows(const std::string& kind, const std::string& path, Width width,
               const SampleSpec& wanted);

  const SampleSpec& spec() const override { return spec_; }
  std::uint64_t size(Split split) const override;
  void read(Split split, std::uint64_t index, SampleView out) const override;
  std::string description() const override;
  std::string fingerprint() const override { return fingerprint_; }

  /// Returns the position in the file, in tokens, of a sample's first token.
  std::uint64_t start_of(Split split, std::uint64_t index) const;

 private:
  /// Returns the token at a position of the file.
  std::int64_t token(std::uint64_t position) const;
  /// Checks the file's length, counts its tokens and calls check_ids().
  void check_contents(std::int64_t wanted_classes);
  /// Settles the vocabulary. Throws UserError where the file has an id outside of it.
  void check_ids(std::int64_t wanted_classes);
  /// Chooses the size of the blocks and holds a tenth of them out.
  void cut_into_blocks();
  /// Returns how many windows start in one block.
  std::uint64_t windows_per_block(Split split) const;

  std::string kind_, path_;
  MappedFile file_;
  Width width_;
  SampleSpec spec_;
  std::uint64_t tokens_ = 0;        ///< number of tokens in the file
  std::uint64_t block_tokens_ = 0;  ///< tokens per block, at least length + 1
  SplitLists blocks_;
  std::string fingerprint_;
};

}  // namespace heteroperf
