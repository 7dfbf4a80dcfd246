#pragma once

#include <memory>
#include <string>

#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// Opens a folder of images and their texts in IDX files, plain or gzipped: `images-idx4-ubyte` {n,
/// channels, rows, columns} or `images-idx3-ubyte` {n, rows, columns}, `texts-idx2-ubyte`, `-short`
/// or `-int` {samples, length} with indices of tokens, and perhaps `counts-idx1-ubyte` {samples}:
/// the images of each sample, which follow one another. Without it each has one. With files whose
/// names begin with `train-` and others with `t10k-` these are the splits, otherwise a sixth is
/// held out by the hash of the text.
///
/// The last token of the model's vocabulary ends a text and fills its rest. Of samples of
/// `captions` the last but one stands for an image, in their order; a text without any has its
/// images in front. In the sample such a token has the places of an image, each token of the text
/// the next one as its target, but for places.
///
/// Throws UserError with path, offset and expectation for malformed or missing files, and with
/// everything else that is wrong: unequal numbers, tokens beyond the vocabulary, images of another
/// size than the places of `wanted` are for, more of them than it wants, texts that do not fit.
std::shared_ptr<const DataSource> open_pair_folder(const std::string& folder,
                                                   const SampleSpec& wanted);

}  // namespace heteroperf
