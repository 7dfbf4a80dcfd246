#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "metrics/base/error.hpp"
#include "workloads/data/image_files.hpp"
#include "workloads/data/mapped_file.hpp"
#include "workloads/data/stored_images.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t image_pixels = 3 * 32 * 32, record_bytes = 1 + image_pixels;
constexpr int cifar_classes = 10, batch_files = 5;

LabelledImages no_images() {
  LabelledImages images;
  images.channels = 3;
  images.height = images.width = 32;
  return images;
}

/// Records of one label byte and 3072 pixel bytes, one colour plane after another.
void append_batch(const std::string& path, LabelledImages& images) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.empty() || bytes.size() % record_bytes != 0) {
    throw UserError(fmt::format("'{}' has {} bytes", path, bytes.size()),
                    fmt::format("a CIFAR-10 binary batch is a multiple of {}; the last record "
                                "starts at offset {}",
                                record_bytes, bytes.size() / record_bytes * record_bytes),
                    "Fetch the binary version of the data set again.");
  }
  for (std::size_t offset = 0; offset < bytes.size(); offset += record_bytes) {
    const auto label = std::to_integer<std::uint8_t>(bytes[offset]);
    if (label >= cifar_classes) {
      throw UserError(fmt::format("label {} in '{}' at offset {}", label, path, offset),
                      "CIFAR-10 has labels 0 to 9");
    }
    const auto* pixels = reinterpret_cast<const std::uint8_t*>(bytes.data() + offset + 1);
    images.labels.push_back(label);
    images.pixels.insert(images.pixels.end(), pixels, pixels + image_pixels);
  }
}

fs::path batch_path(const fs::path& folder, int number) {
  return folder / fmt::format("data_batch_{}.bin", number);
}

/// How many batches there are; a gap is an error, not a smaller data set.
int count_batches(const fs::path& folder) {
  int last = 0;
  for (int i = 1; i <= batch_files; ++i) {
    if (fs::exists(batch_path(folder, i))) last = i;
  }
  ProblemList problems;
  for (int i = 1; i <= std::max(last, 1); ++i) {
    if (fs::exists(batch_path(folder, i))) continue;
    problems.add(fmt::format("'{}' is missing", batch_path(folder, i).string()),
                 last == 0 ? "the folder holds no CIFAR-10 binary batch"
                           : fmt::format("data_batch_{}.bin is there", last),
                 "Give the folder of the binary version as cifar10:DIR.");
  }
  problems.throw_if_any();
  return last;
}

}  // namespace

std::shared_ptr<const DataSource> open_cifar10_folder(const std::string& folder) {
  LabelledImages images = no_images();
  const int batches = count_batches(folder);
  for (int i = 1; i <= batches; ++i) append_batch(batch_path(folder, i).string(), images);
  const std::size_t train = images.labels.size();
  const fs::path test = fs::path(folder) / "test_batch.bin";
  const bool has_test = fs::exists(test);
  if (has_test) append_batch(test.string(), images);
  SplitLists lists = has_test ? split_after(train, images.labels.size()) : hold_out_images(images);
  return std::make_shared<StoredImages>("cifar10:" + folder, std::move(images), std::move(lists),
                                        cifar_classes);
}

}  // namespace heteroperf
