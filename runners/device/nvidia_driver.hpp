#pragma once

#include <filesystem>

namespace heteroperf {

/// Asked before any library of a GPU's is loaded: that takes longer than all else.
inline bool has_nvidia_driver() { return std::filesystem::exists("/dev/nvidiactl"); }
inline constexpr const char* no_nvidia_driver =
    "no NVIDIA driver is loaded (/dev/nvidiactl is missing)";

}  // namespace heteroperf
