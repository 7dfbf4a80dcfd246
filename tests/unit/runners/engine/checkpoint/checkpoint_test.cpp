#include "runners/engine/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(Checkpoint, LoadsWithAnyShardingWhatWasSavedWithAnother) {
  RandomStream random(2026);
  for (int round = 0; round < 12; ++round) {
    const ScratchFolder scratch;
    const StoredTraining training = StoredTraining::random(1 + random.below(12), random);
    const int saving = 1 + static_cast<int>(random.below(5));
    const int loading = 1 + static_cast<int>(random.below(5));
    const fs::path folder = scratch / "step-3";
    save(folder, some_state(3), random_sharding(training, saving, random, Fill::training));

    Sharding loaded = random_sharding(training, loading, random, Fill::zero);
    ASSERT_FALSE(holds(loaded, training)) << "nothing to load in round " << round;
    for (const auto& pieces : loaded.pieces) CheckpointReader(folder).read(pieces);
    EXPECT_TRUE(holds(loaded, training)) << "round " << round;
  }
}

TEST(Checkpoint, ReadsOverlappingPiecesAndMemoryOfAnyStrides) {
  const ScratchFolder scratch;
  RandomStream random(5);
  const StoredTraining training = StoredTraining::of({{"w", StoredType::f32, {5, 7}}});
  save(scratch / "c", some_state(1), random_sharding(training, 3, random, Fill::training));

  std::vector<float> transposed(7 * 5), row(7), whole(5 * 7);
  TensorPiece piece{"w", StoredType::f32, {5, 7}, whole_box({5, 7}), {1, 5}, transposed.data()};
  TensorPiece third = piece;
  third.box.first[0] = 2;
  third.box.last[0] = 3;
  third.strides = {7, 1};
  third.data = row.data();
  CheckpointReader(scratch / "c").read({piece, third});

  std::memcpy(whole.data(), training.bytes[0].data(), training.bytes[0].size());
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 7; ++j) {
      EXPECT_EQ(std::memcmp(&transposed[j * 5 + i], &whole[i * 7 + j], sizeof(float)), 0);
    }
  }
  EXPECT_EQ(std::memcmp(row.data(), &whole[2 * 7], 7 * sizeof(float)), 0);
}

TEST(Checkpoint, KeepsTheStateAndNamesOfItsTensors) {
  const ScratchFolder scratch;
  RandomStream random(11);
  const StoredTraining training = StoredTraining::of(
      {{"optimizer.first/h0.\"odd\" name\n", StoredType::f64, {3}}, {"b", StoredType::i64, {}}});
  const CheckpointReport report =
      save(scratch / "c", some_state(9), random_sharding(training, 2, random, Fill::training));
  const CheckpointReader reader(scratch / "c");
  EXPECT_EQ(reader.state(), some_state(9));
  EXPECT_EQ(report.step, 9u);
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(scratch / "c")) bytes += entry.file_size();
  EXPECT_EQ(report.bytes, bytes);
  ASSERT_EQ(reader.tensors().size(), 2u);
  EXPECT_TRUE(reader.has("optimizer.first/h0.\"odd\" name\n"));
  EXPECT_TRUE(reader.has("b"));
  EXPECT_FALSE(reader.has("c"));
  EXPECT_NO_THROW(reader.verify());
}

/// By the format's own words: u64 little-endian header length, JSON, then data without holes.
TEST(Checkpoint, FilesAreSafetensors) {
  const ScratchFolder scratch;
  RandomStream random(3);
  const StoredTraining training = StoredTraining::random(9, random);
  save(scratch / "c", some_state(1), random_sharding(training, 1, random, Fill::training));
  const std::string file = text_of(scratch / "c" / "rank-0.safetensors");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  ASSERT_LE(8 + length, file.size());
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(file[8], '{');
  std::set<std::pair<std::uint64_t, std::uint64_t>> ranges;
  const auto header = nlohmann::json::parse(file.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : entry["shape"]) elements *= extent;
    const std::uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    const std::uint64_t bytes = entry["dtype"] == "BF16"  ? 2
                                : entry["dtype"] == "F32" ? 4
                                                          : std::uint64_t{8};
    EXPECT_EQ(end - begin, elements * bytes) << name;
    EXPECT_EQ(begin % bytes, 0u) << name;
    ranges.insert({begin, end});
  }
  std::uint64_t reached = 0;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin, reached);
    reached = end;
  }
  EXPECT_EQ(8 + length + reached, file.size());
}

TEST(Checkpoint, NothingIsThereBeforeItIsPublishedAndNoLeftoversAfter) {
  const ScratchFolder scratch;
  RandomStream random(4);
  const StoredTraining training = StoredTraining::random(4, random);
  const Sharding three = random_sharding(training, 3, random, Fill::training);
  const Sharding two = random_sharding(training, 2, random, Fill::training);
  const CheckpointWriter writer(scratch / "runs" / "step-1/");
  write_all(writer, three);  // interrupted
  EXPECT_FALSE(fs::exists(scratch / "runs" / "step-1"));
  writer.publish(some_state(1), write_all(writer, two));
  EXPECT_EQ(names_in(scratch / "runs"), std::set<std::string>{"step-1"});
  EXPECT_EQ(names_in(scratch / "runs" / "step-1"),
            (std::set<std::string>{"index.json", "rank-0.safetensors", "rank-1.safetensors"}));
  EXPECT_THROW(save(scratch / "runs" / "step-1", some_state(1), two), UserError);
  EXPECT_NO_THROW(CheckpointReader(scratch / "runs" / "step-1").verify());
  EXPECT_EQ(names_in(scratch / "runs"), std::set<std::string>{"step-1"});
}

}  // namespace
}  // namespace heteroperf
