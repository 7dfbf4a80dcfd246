#pragma once

#include <memory>
#include <string>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Opens a folder in MNIST's layout: `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, the
/// same with `t10k-`, or one pair without prefix; also with a dot before `idx`; plain or gzipped
/// (`.gz`). Images are unsigned bytes {n, rows, columns}.
///
/// With a training and a test pair these are the splits, otherwise a sixth is held out by hash.
/// There is one class more than the highest training label; each from 1 up must have a sample.
/// Throws UserError with path, offset and expectation.
std::shared_ptr<const DataSource> open_idx_folder(const std::string& folder);

/// Opens a folder with CIFAR-10's binary batches: data_batch_1.bin … data_batch_5.bin (the first at
/// least, none left out between) and test_batch.bin; without the last a sixth is held out by hash.
/// Throws UserError with path, offset and expectation.
std::shared_ptr<const DataSource> open_cifar10_folder(const std::string& folder);

}  // namespace heteroperf
