#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workloads/workload.hpp"

namespace heteroperf {

/// What the scaling rule expects of one core, a constant: nothing is measured to choose a size, so
/// that the same cores and memory always get the same one. About what a 2020s server core reaches
/// in float32 matrix products. The choice and its reason are in `list --json`.
inline constexpr double nominal_core_ops_per_second = 40e9;

/// The scaling rule: the largest size whose training state takes at most half
/// of a rank's memory and whose step of the size's own micro-batch takes at most two seconds (0.2
/// in a search) at the expected rate; the smallest where none does. The global batch grows with the
/// ranks, the size does not: more ranks per host leave each less memory and fewer threads.
/// An image classifier has one size.
ScalingChoice choose_llm_size(const ScalingInput& machine);
ScalingChoice choose_image_size(const ScalingInput& machine);
ScalingChoice choose_search_size(const ScalingInput& machine);

/// Returns the sample that generated data have for a fixed model, which may be given another length
/// of its token sequences; of no model (""): for a search. Throws UserError for an unknown model.
SampleSpec generated_sample(const std::string& model, std::optional<std::int64_t> length = {});
/// The named model for such samples. Throws UserError for an unknown one, or where it cannot take
/// them.
ModelGraph model_for(const std::string& name, const SampleSpec& spec);

/// Generated data of this seed for their description, fingerprint and floors, in microseconds: no
/// sample of them can be read. Throws UserError where there can be none of `wanted`.
std::shared_ptr<const DataSource> describe_generated(const SampleSpec& wanted, std::uint64_t seed);

/// The quality to be reached on these data: half of the way from guessing to the floor. Nothing for
/// tokens without a known floor; of images without one the floor counts as 0.
std::optional<QualityTarget> target_on(const DataSource& data);
std::optional<QualityTarget> target_on(const SampleSpec& spec, std::optional<double> loss_floor,
                                       std::optional<double> error_floor);

/// The residual net that an architecture search of this size ("w16", "w32", …) starts from. Throws
/// UserError for any other size.
ModelGraph search_start(const std::string& size, const SampleSpec& spec);

/// Language-model training on token streams. `size` is a name of llm_ladder() or "auto".
Workload make_llm(const WorkloadRequest& request, const ScalingInput& machine);
/// One fixed image classifier, named by `model`.
Workload make_image(const WorkloadRequest& request, const ScalingInput& machine);
/// Architecture search over image classifiers; `graph` is search_start(), whose size the rule
/// chooses.
Workload make_automl_image(const WorkloadRequest& request, const ScalingInput& machine);

}  // namespace heteroperf
