#include "results/events.hpp"

#include <array>

namespace heteroperf {
namespace {

// In the order of the variant and of the enums.
constexpr std::array<const char*, std::variant_size_v<Event>> kKinds{
    "start", "config",   "system", "plan",     "scale",    "workload", "phase", "step", "trial",
    "eval",  "observed", "memory", "checksum", "overhead", "warning",  "peak",  "stop"};
constexpr std::array kFamilies{"classifier", "language_model"};
constexpr std::array kMeasures{"accuracy", "loss"};
constexpr std::array kPhases{"setup", "warmup", "measure", "evaluate", "finish"};
constexpr std::array kTrialStates{"running",  "completed", "stopped",
                                  "diverged", "failed",    "truncated"};
constexpr std::array kStatuses{"complete", "partial", "failed"};

}  // namespace

const char* kind_name(const Event& event) { return kKinds[event.index()]; }
const char* to_string(WorkloadFamily f) { return kFamilies[static_cast<std::size_t>(f)]; }
const char* to_string(QualityMeasure m) { return kMeasures[static_cast<std::size_t>(m)]; }
const char* to_string(Phase p) { return kPhases[static_cast<std::size_t>(p)]; }
const char* to_string(TrialStatus s) { return kTrialStates[static_cast<std::size_t>(s)]; }
const char* to_string(RunStatus s) { return kStatuses[static_cast<std::size_t>(s)]; }

}  // namespace heteroperf
