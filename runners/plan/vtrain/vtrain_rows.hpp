#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace heteroperf {

/// One measured training of vTrain's (Bang et al., MICRO 2024): a GPT on A100s.
struct VtrainRow {
  std::int64_t devices = 1, global_batch = 1, micro_batch = 1;
  std::int64_t hidden = 1, heads = 1, layers = 1, sequence = 1;
  std::int64_t tensor = 1, data = 1, pipeline = 1;
  double step_s = 0;
  std::int64_t micro_batches() const { return global_batch / (micro_batch * data); }
};

/// Comma-separated, with a heading row of vTrain's names; a column of parameters may stand first.
/// Throws UserError with everything wrong, each with its line: cells that are no positive numbers,
/// degrees that do not multiply to the devices, batches and layers that do not divide.
std::vector<VtrainRow> read_vtrain_rows(const std::filesystem::path& file);

/// A row that its neighbours contradict.
struct OddRow {
  std::size_t index = 0;
  std::string why;
};
/// Among rows that differ in the micro-batch alone, one that takes more than `excess` longer than
/// those of the next smaller and the next larger micro-batch, or twice as long as its only
/// neighbour with fewer or as many samples; and rows of one configuration that differ by more.
std::vector<OddRow> odd_rows(const std::vector<VtrainRow>& rows, double excess = 0.1);

}  // namespace heteroperf
