// LibTorch lives in a shared module that the program loads on first use: half a second that verbs
// without training do not pay. `doctor` and the checks of a device only look at the module's file
// and at the libraries that the dynamic linker would load with it.
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "metrics/base/error.hpp"
#include "runners/engine/engine.hpp"

namespace heteroperf {

std::shared_ptr<Engine> load_engine() {
#if HETEROPERF_WITH_TORCH
  static const SharedModule module = SharedModule::open("engine", Visibility::local);
  return std::shared_ptr<Engine>(module.symbol<Engine*()>("heteroperf_make_engine")());
#else
  throw SystemError("no training is possible with this program", "not built with LibTorch",
                    "Configure with -DHETEROPERF_TORCH=ON", ErrorKind::environment);
#endif
}

double bf16_speedup(Engine& engine, int threads) {
  constexpr double seconds_each = 0.1;
  const auto fastest = [&](Precision precision) {
    return engine.find_fastest_product(precision, threads, seconds_each);
  };
  return fastest(Precision::bf16).mm_ops_per_second / fastest(Precision::fp32).ops_per_second;
}

namespace {

/// The first line about a library that is not found in the linker's own list, which maps the
/// libraries and runs nothing.
std::string missing_library(const std::string& module) {
  const std::string command = "ldd '" + module + "' 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string missing;
  std::array<char, 4096> line{};
  while (pipe != nullptr && fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    const std::string_view text = trimmed(line.data());
    if (missing.empty() && text.find("not found") != std::string_view::npos) missing = text;
  }
  return missing;
}

/// The state of a module by its file.
BackendStatus file_status(const char* module, const char* version) {
  BackendStatus status{true, false, version, ""};
  try {
    status.reason = missing_library(SharedModule::find(module).string());
    status.usable = status.reason.empty();
  } catch (const Error& error) {
    status.reason = error.what();
  }
  return status;
}

}  // namespace

BackendStatus engine_file_status() {
  if (HETEROPERF_WITH_TORCH != 0) return file_status("engine", HETEROPERF_LIBTORCH_VERSION);
  return {false, false, "", "not built with LibTorch (configure with -DHETEROPERF_TORCH=ON)"};
}

BackendStatus cuda_file_status() {
  if (HETEROPERF_WITH_CUDA == 0) {
    return {false, false, "", "not built with CUDA (configure with -DHETEROPERF_CUDA=ON)"};
  }
  if (has_nvidia_driver()) return file_status("cuda", HETEROPERF_CUDA_VERSION);
  return {true, false, HETEROPERF_CUDA_VERSION, no_nvidia_driver};
}

}  // namespace heteroperf
