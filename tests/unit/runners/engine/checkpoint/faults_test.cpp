#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/checkpoint/checkpoint_index.hpp"
#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

std::string bytes_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void put_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// One saved checkpoint of two tensors on two ranks, cut in halves.
class CheckpointFaults : public testing::Test {
 protected:
  CheckpointFaults() {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      for (std::size_t t = 0; t < 2; ++t) sharding_.pieces[rank].push_back(half(t, rank));
    }
    save(folder_, some_state(5), sharding_);
  }

  TensorPiece half(std::size_t tensor, std::size_t rank) {
    const StoredTensor& stored = training_.tensors[tensor];
    TensorPiece piece{stored.name,
                      stored.type,
                      stored.shape,
                      whole_box(stored.shape),
                      dense_strides(whole_box(stored.shape)),
                      training_.bytes[tensor].data()};
    piece.box.first[0] = rank == 0 ? 0 : 2;
    piece.box.last[0] = rank == 0 ? 2 : 4;
    return piece;
  }

  /// What opening the folder, and reading all of it, says.
  std::string message() const {
    return message_of([&] { CheckpointReader(folder_).verify(); });
  }
  static std::string message_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  void expect_message(const std::string& part) const {
    EXPECT_NE(message().find(part), std::string::npos) << message();
  }

  /// Changes the index in a way that its own checksum agrees with.
  void change_index(const std::function<void(CheckpointIndex&)>& change) const {
    CheckpointIndex index = index_from_json_text(bytes_of_file(folder_ / "index.json"), "index");
    change(index);
    put_text(folder_ / "index.json", to_json_text(index));
  }

  ScratchFolder scratch_;
  fs::path folder_ = scratch_ / "step-5", file_ = folder_ / "rank-1.safetensors";
  StoredTraining training_ = StoredTraining::of(
      {{"w", StoredType::f32, {4, 3}}, {"optimizer.first/w", StoredType::f64, {4}}});
  Sharding sharding_{{{}, {}}, {}, {}};
};

TEST_F(CheckpointFaults, TheUntouchedOneIsFine) { EXPECT_EQ(message(), "nothing was thrown"); }

TEST_F(CheckpointFaults, NoFolderNoIndex) {
  EXPECT_NE(message_of([&] { CheckpointReader(scratch_ / "none"); }).find("is no checkpoint"),
            std::string::npos);
  fs::remove(folder_ / "index.json");
  expect_message("it has no index.json");
}

TEST_F(CheckpointFaults, AMissingFile) {
  fs::remove(file_);
  expect_message("rank-1.safetensors cannot be read");
}

TEST_F(CheckpointFaults, ATruncatedFileAtEveryLength) {
  const std::uintmax_t whole = fs::file_size(file_);
  for (std::uintmax_t length = whole; length-- > 0;) {
    fs::resize_file(file_, length);
    expect_message("the index says " + std::to_string(whole));
  }
}

TEST_F(CheckpointFaults, AnyChangedByteOfAFile) {
  const std::string whole = bytes_of_file(file_);
  std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, int byte) {
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(byte)).flush();
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    put(i, whole[i] ^ 0x10);
    expect_message("does not match its checksum");
    put(i, whole[i]);
  }
  EXPECT_EQ(message(), "nothing was thrown");
}

TEST_F(CheckpointFaults, AnyChangedByteOfTheIndex) {
  const std::string whole = bytes_of_file(folder_ / "index.json");
  const auto refused = [](const std::string& text) {
    return message_of([&] { index_from_json_text(text, "index"); }) != "nothing was thrown";
  };
  EXPECT_FALSE(refused(whole));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (std::isspace(static_cast<unsigned char>(whole[i]))) continue;
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x01);
    EXPECT_TRUE(refused(changed)) << "byte " << i << ": " << changed;
  }
  for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
    EXPECT_TRUE(refused(whole.substr(0, length))) << length;
  }
  put_text(folder_ / "index.json", whole.substr(0, whole.size() / 2));
  expect_message("index.json");
}

TEST_F(CheckpointFaults, MissingAndOverlappingPiecesAreToldTogether) {
  change_index([](CheckpointIndex& index) {
    index.tensors[0].pieces.pop_back();
    index.tensors[1].pieces[1].box.first[0] = 1;
  });
  expect_message("tensor optimizer.first/w [4] is not whole");
  expect_message("tensor w [4x3] has elements twice");
}

TEST_F(CheckpointFaults, PiecesOutsideOfTheirTensorAndTheirFile) {
  change_index([](CheckpointIndex& index) {
    index.tensors[0].pieces[1].box.last[0] = 5;
    index.tensors[1].pieces[1].offset = UINT64_MAX - 3;
  });
  expect_message("has a piece outside of it ([2,5))");
  expect_message("lies outside of rank-1.safetensors");
}

TEST_F(CheckpointFaults, ShapesThatNoMemoryHolds) {
  change_index([](CheckpointIndex& index) {
    index.tensors[1].tensor.shape = {INT64_MAX, INT64_MAX};
    for (StoredPiece& piece : index.tensors[1].pieces) piece.box.last = {INT64_MAX, INT64_MAX};
  });
  expect_message("its shape is out of range");
}

TEST_F(CheckpointFaults, AFileOutsideOfTheFolder) {
  change_index([](CheckpointIndex& index) { index.files[0].name = "../rank-0.safetensors"; });
  expect_message("must be a file of the folder itself");
}

TEST_F(CheckpointFaults, AnotherGraphTypeShapeOrName) {
  const CheckpointReader reader(folder_);
  EXPECT_NO_THROW(reader.expect_graph(some_state(1).graph_hash));
  EXPECT_NE(message_of([&] { reader.expect_graph("bbbb"); }).find("another model"),
            std::string::npos);

  std::vector<float> memory(12, 1.5f);
  const auto wanted = [&](const char* name, StoredType type, std::vector<std::int64_t> shape) {
    const Box box = whole_box(shape);
    return TensorPiece{name, type, std::move(shape), box, dense_strides(box), memory.data()};
  };
  const std::string said = message_of([&] {
    reader.read({wanted("w", StoredType::f32, {4, 3}), wanted("w", StoredType::bf16, {4, 3}),
                 wanted("w", StoredType::f32, {3, 4}), wanted("v", StoredType::f32, {2})});
  });
  EXPECT_NE(said.find("this training has BF16 [4x3]"), std::string::npos) << said;
  EXPECT_NE(said.find("this training has F32 [3x4]"), std::string::npos) << said;
  EXPECT_NE(said.find("has no tensor v"), std::string::npos) << said;
  EXPECT_EQ(memory, std::vector<float>(12, 1.5f)) << "written in spite of wrong pieces";
}

TEST_F(CheckpointFaults, GapsOverlapsAndContradictionsAreNotSaved) {
  const fs::path other = scratch_ / "step-6";
  const auto refused = [&](const Sharding& sharding) {
    try {
      save(other, some_state(6), sharding);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal) << error.what();
      EXPECT_FALSE(fs::exists(other));
      return true;
    }
    return false;
  };
  Sharding gap = sharding_, twice = sharding_, unlike = sharding_;
  gap.pieces[1].pop_back();
  twice.pieces[1].push_back(half(0, 0));
  unlike.pieces[1][0].type = StoredType::i64;
  EXPECT_TRUE(refused(gap));
  EXPECT_TRUE(refused(twice));
  EXPECT_TRUE(refused(unlike));
}

TEST_F(CheckpointFaults, ARankThatWroteNothingHereIsNamed) {
  const CheckpointWriter writer(scratch_ / "step-7"), elsewhere(scratch_ / "there" / "step-7");
  try {
    writer.publish(some_state(7),
                   {writer.write(0, sharding_.pieces[0]), elsewhere.write(1, sharding_.pieces[1])});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::run_failed);
    EXPECT_NE(std::string(error.what()).find("rank 1's file"), std::string::npos) << error.what();
  }
}

/// Runs `body` where no file may grow beyond `bytes`; true when it did what it should.
bool with_files_up_to(rlim_t bytes, const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::_exit(::setrlimit(RLIMIT_FSIZE, &limit) == 0 && body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(CheckpointFaults, AFullDiskLeavesTheLastGoodOne) {
  const fs::path next = scratch_ / "step-6";
  const std::uint64_t data = fs::file_size(file_);
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{40}, rlim_t{data - 1}, rlim_t{data}}) {
    const bool as_it_should = with_files_up_to(bytes, [&] {
      try {
        save(next, some_state(6), sharding_);
        return false;
      } catch (const Error& error) {
        return error.kind() == ErrorKind::run_failed &&
               std::string(error.what()).find("cannot write") != std::string::npos;
      }
    });
    EXPECT_TRUE(as_it_should) << bytes;
    EXPECT_FALSE(fs::exists(next));
    EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path()), fs::directory_iterator()), 1)
        << "leftovers with " << bytes;
    EXPECT_EQ(message(), "nothing was thrown");
  }
}

TEST_F(CheckpointFaults, AFolderThatCannotBeWrittenSaysSo) {
  // /proc refuses new files to everybody, root included.
  EXPECT_THROW(save("/proc/step-6", some_state(6), sharding_), Error);
}

}  // namespace
}  // namespace heteroperf
