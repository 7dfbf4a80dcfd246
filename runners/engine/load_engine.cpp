// LibTorch lives in a shared module that the program loads on first use: half a second that verbs
// without training do not pay. `doctor` and the checks of a device only look at the module's file
// and at the libraries that the dynamic linker would load with it.
#include <array>
#include <cstdio>
#include <memory>
#include <string>

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

namespace {

/// The linker's own list: it maps the libraries and runs nothing.
std::string list_libraries(const std::string& module) {
  const std::string command = "ldd '" + module + "' 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 4096> block{};
  while (const std::size_t count = fread(block.data(), 1, block.size(), pipe.get())) {
    text.append(block.data(), count);
  }
  return text;
}

/// The line that holds `position`, without leading blanks.
std::string line_at(const std::string& text, std::size_t position) {
  const std::size_t begin = text.rfind('\n', position) + 1;
  const std::size_t first = text.find_first_not_of(" \t", begin);
  return text.substr(first, text.find('\n', position) - first);
}

/// The state of a module by its file: notes the first library that the linker does not find.
BackendStatus file_status(const char* module, const char* version) {
  BackendStatus status{true, false, version, ""};
  try {
    const std::string libraries = list_libraries(SharedModule::find(module).string());
    const std::size_t missing = libraries.find("not found");
    status.usable = missing == std::string::npos;
    if (!status.usable) status.reason = line_at(libraries, missing);
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
