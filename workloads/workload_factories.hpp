#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workloads/workload.hpp"

namespace heteroperf {

/// The rate that the scaling rule expects of one core: about what a 2020s server core reaches in
/// float32 matrix products. It is a constant and nothing is measured to choose a size, so that the
/// same cores and memory always get the same one. `list --json` has the choice and its reason.
inline constexpr double nominal_core_ops_per_second = 40e9;

/// The scaling rule takes the largest size whose training state takes at most half of a rank's
/// memory and whose step of the size's own micro-batch takes at most two seconds (0.2 in a search)
/// at the expected rate; the smallest size where none does. The global batch grows with the ranks,
/// the size does not: more ranks per host leave each less memory and fewer threads. An image
/// classifier has one size.
ScalingChoice choose_llm_size(const ScalingInput& machine);
ScalingChoice choose_image_size(const ScalingInput& machine);
ScalingChoice choose_search_size(const ScalingInput& machine);
ScalingChoice choose_two_tower_size(const ScalingInput& machine);
ScalingChoice choose_vlm_size(const ScalingInput& machine);
ScalingChoice choose_co_attention_size(const ScalingInput& machine);

/// Names the unit of throughput: "image", "token", "pair" of an image and its text, or "sample" of
/// a text with any number of images.
const char* unit_of(const SampleSpec& spec);

/// Returns the sample that generated data have for a fixed model, whose token sequences may be
/// given another length, and any number of images from none to `images`: then a text is as many
/// times as long by default. For no model (""), the sample of a search. Throws UserError for an
/// unknown model, and for images of one that puts none into its text.
SampleSpec generated_sample(const std::string& model, std::optional<std::int64_t> length = {},
                            std::optional<std::int64_t> images = {});

/// Builds the named model for such samples. Throws UserError for an unknown model, and where it
/// cannot take them.
ModelGraph model_for(const std::string& name, const SampleSpec& spec);

/// Makes generated data of this seed for their description, fingerprint and floors, in
/// microseconds: no sample of them can be read. Throws UserError where there can be none of
/// `wanted`.
std::shared_ptr<const DataSource> describe_generated(const SampleSpec& wanted, std::uint64_t seed);

/// Returns the quality to be reached on these data, half of the way from guessing to the floor.
/// There is none for texts without a known floor; for images without a floor it counts as 0. A
/// guess among the pairs of an evaluation has a loss of ln evaluated_pairs; the loss of captions is
/// guessed by their entropy without the image, that of matches is ln 2.
std::optional<QualityTarget> target_on(const DataSource& data);
std::optional<QualityTarget> target_on(const SampleSpec& spec, std::optional<double> loss_floor,
                                       std::optional<double> error_floor);

/// Returns the residual net from which an architecture search of this size ("w16", "w32", …)
/// starts. Throws UserError for any other size.
ModelGraph search_start(const std::string& size, const SampleSpec& spec);

/// Makes the training of a language model on token streams. `size` is a name of llm_ladder() or
/// "auto".
Workload make_llm(const WorkloadRequest& request, const ScalingInput& machine);
/// Makes the training of two towers on pairs of an image and a text. `size` is a name of
/// two_tower_ladder() or its short form ("nano", "b32"), or "auto".
Workload make_two_tower(const WorkloadRequest& request, const ScalingInput& machine);
/// Makes the training of a vision-language model on images and their captions. `size` is a name of
/// vlm_ladder() or its short form ("nano", "7b"), or "auto".
Workload make_vlm(const WorkloadRequest& request, const ScalingInput& machine);
/// Makes the training of two streams with co-attention, which tell whether an image and a text
/// belong together. `size` is a name of co_attention_ladder() or its short form ("nano"), or
/// "auto".
Workload make_co_attention(const WorkloadRequest& request, const ScalingInput& machine);
/// Makes the training of a fixed image classifier, named by `model`.
Workload make_image(const WorkloadRequest& request, const ScalingInput& machine);
/// Makes an architecture search over image classifiers; `graph` is search_start(), whose size the
/// rule chooses.
Workload make_automl_image(const WorkloadRequest& request, const ScalingInput& machine);

}  // namespace heteroperf
