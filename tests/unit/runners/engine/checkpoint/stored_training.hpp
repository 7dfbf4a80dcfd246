#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// A folder of this test that is empty now and gone afterwards.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Whole tensors; byte i of tensor t is a function of (t, i) alone.
struct StoredTraining {
  std::vector<StoredTensor> tensors;
  std::vector<std::vector<std::byte>> bytes;

  static StoredTraining of(std::vector<StoredTensor> tensors);
  /// `count` of random types and shapes of 0 to 4 dimensions.
  static StoredTraining random(std::size_t count, RandomStream& random);
};

/// What ranks hold of a training: dense tiles, each in a memory of its own.
struct Sharding {
  struct Held {
    std::size_t tensor = 0;
    TensorPiece piece;
    std::vector<std::byte>* memory = nullptr;
  };
  std::vector<std::vector<TensorPiece>> pieces;  ///< by rank
  std::vector<Held> held;                        ///< all of them
  std::deque<std::vector<std::byte>> memory;
};

enum class Fill { training, zero };
/// Every tensor cut at random along every dimension, its tiles on random ranks.
Sharding random_sharding(const StoredTraining& training, int ranks, RandomStream& random,
                         Fill fill);

/// Whether the memory of every piece is what the training has there.
bool holds(const Sharding& sharding, const StoredTraining& training);

std::vector<std::string> write_all(const CheckpointWriter& writer, const Sharding& sharding);
/// Saves it from all of its ranks.
CheckpointReport save(const std::filesystem::path& folder, const CheckpointState& state,
                      const Sharding& sharding);
CheckpointState some_state(std::uint64_t step);

}  // namespace heteroperf
