#pragma once

#include <string>

#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// The machines of a run in words, as "2 x AMD EPYC 7763, 256 CPUs, NVIDIA H200": CPU
/// (sockets, model, logical CPUs; the host's name where a record lacks one of them) and models of
/// GPUs, several in their proportions. Hosts of one cluster have names of their own, so this tells
/// machines apart: scales with another text are no scales of one system.
std::string machines_text(const RunDigest& run);
/// The same for scales that are held against one another; empty of emulated devices, which are what
/// their description says, on any machine.
std::string scaled_machines(const RunDigest& run);

/// " (4 x NVIDIA H200)", after the classes of a run's devices: ranks by the model of their GPU;
/// empty where there is none, or where the classes say it already.
std::string gpus_beside_classes(const RunDigest& run);

/// "2 x cpu + 1 x cuda (1 x NVIDIA H200)": the run's devices by class, and the models of GPUs that
/// the classes do not say; `times` stands between count and class.
std::string devices_text(const RunDigest& run, const std::string& times);

}  // namespace heteroperf
