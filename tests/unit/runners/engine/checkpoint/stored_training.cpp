#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runners/engine/checkpoint/held_tensor.hpp"

namespace heteroperf {
namespace {

/// 0 = b₀ ≤ b₁ ≤ … = extent, up to four parts, some of them empty.
std::vector<std::int64_t> random_boundaries(std::int64_t extent, RandomStream& random) {
  std::vector<std::int64_t> at{0, extent};
  for (std::uint64_t cuts = random.below(4); cuts > 0; --cuts) {
    at.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent) + 1)));
  }
  std::sort(at.begin(), at.end());
  return at;
}

std::vector<Box> random_tiles(const std::vector<std::int64_t>& shape, RandomStream& random) {
  std::vector<Box> tiles{whole_box(shape)};
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const auto at = random_boundaries(shape[dim], random);
    std::vector<Box> finer;
    for (const Box& tile : tiles) {
      for (std::size_t i = 0; i + 1 < at.size(); ++i) {
        finer.push_back(tile);
        finer.back().first[dim] = at[i];
        finer.back().last[dim] = at[i + 1];
      }
    }
    tiles = std::move(finer);
  }
  return tiles;
}

std::byte* unconst(const std::byte* data) { return const_cast<std::byte*>(data); }

void copy_from(const StoredTraining& training, std::size_t tensor, const TensorPiece& piece,
               std::byte* to) {
  const StoredTensor& stored = training.tensors[tensor];
  const Box whole = whole_box(stored.shape);
  copy_box(piece.box, {whole, dense_strides(whole), unconst(training.bytes[tensor].data())},
           {piece.box, piece.strides, to}, element_bytes(stored.type));
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "heteroperf-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

StoredTraining StoredTraining::of(std::vector<StoredTensor> tensors) {
  StoredTraining training{std::move(tensors), {}};
  for (std::size_t t = 0; t < training.tensors.size(); ++t) {
    const StoredTensor& tensor = training.tensors[t];
    const auto count = static_cast<std::size_t>(whole_box(tensor.shape).count());
    auto& bytes = training.bytes.emplace_back(count * element_bytes(tensor.type));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(random_bits(7, t, i));
    }
  }
  return training;
}

StoredTraining StoredTraining::random(std::size_t count, RandomStream& random) {
  constexpr StoredType types[] = {StoredType::f32, StoredType::f64, StoredType::bf16,
                                  StoredType::i64};
  std::vector<StoredTensor> tensors;
  for (std::size_t t = 0; t < count; ++t) {
    StoredTensor tensor{fmt::format("h{}.weight", t), types[random.below(4)], {}};
    for (std::uint64_t dims = random.below(5); dims > 0; --dims) {
      tensor.shape.push_back(1 + static_cast<std::int64_t>(random.below(9)));
    }
    tensors.push_back(std::move(tensor));
  }
  return of(std::move(tensors));
}

Sharding random_sharding(const StoredTraining& training, int ranks, RandomStream& random,
                         Fill fill) {
  Sharding sharding;
  sharding.pieces.resize(static_cast<std::size_t>(ranks));
  for (std::size_t t = 0; t < training.tensors.size(); ++t) {
    const StoredTensor& tensor = training.tensors[t];
    for (const Box& tile : random_tiles(tensor.shape, random)) {
      auto& memory = sharding.memory.emplace_back(static_cast<std::size_t>(tile.count()) *
                                                  element_bytes(tensor.type));
      const TensorPiece piece{tensor.name, tensor.type,         tensor.shape,
                              tile,        dense_strides(tile), memory.data()};
      if (fill == Fill::training) copy_from(training, t, piece, memory.data());
      const std::size_t rank = random.below(static_cast<std::uint64_t>(ranks));
      sharding.pieces[rank].push_back(piece);
      sharding.held.push_back({t, piece, &memory});
    }
  }
  return sharding;
}

bool holds(const Sharding& sharding, const StoredTraining& training) {
  return std::all_of(sharding.held.begin(), sharding.held.end(), [&](const Sharding::Held& held) {
    std::vector<std::byte> expected(held.memory->size());
    copy_from(training, held.tensor, held.piece, expected.data());
    return expected == *held.memory;
  });
}

std::vector<std::string> write_all(const CheckpointWriter& writer, const Sharding& sharding) {
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sharding.pieces.size(); ++rank) {
    texts.push_back(writer.write(static_cast<int>(rank), sharding.pieces[rank]));
  }
  return texts;
}

CheckpointReport save(const std::filesystem::path& folder, const CheckpointState& state,
                      const Sharding& sharding) {
  const CheckpointWriter writer(folder);
  return writer.publish(state, write_all(writer, sharding));
}

CheckpointState some_state(std::uint64_t step) {
  return {"llm",   std::string(32, 'a'), "adamw 8x4", 18446744073709551615u, step, step - 1,
          step * 8};
}

}  // namespace heteroperf
