// LibTorch lives in a shared module that the program loads on first use: half a second that verbs
// without training do not pay. `doctor` and the checks of a device only look at the module's file
// and at the libraries that the dynamic linker would load with it.
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "metrics/base/error.hpp"
#include "runners/cluster/shared_module.hpp"
#include "runners/cluster/system_files.hpp"
#include "runners/engine/engine.hpp"

namespace heteroperf {
namespace {

using MakeEngine = Engine*();

}  // namespace

std::shared_ptr<Engine> load_engine() {
#if HETEROPERF_WITH_TORCH
  static const SharedModule module = SharedModule::open("engine", Visibility::local);
  return std::shared_ptr<Engine>(module.symbol<MakeEngine>("heteroperf_make_engine")());
#else
  throw SystemError("no training is possible with this program", "not built with LibTorch",
                    "Configure with -DHETEROPERF_TORCH=ON", ErrorKind::environment);
#endif
}

EngineStatus engine_status() {
  EngineStatus status;
  status.built = HETEROPERF_WITH_TORCH != 0;
  try {
    status.version = load_engine()->libtorch_version();
    status.usable = true;
  } catch (const std::exception& error) {
    status.reason = error.what();
  }
  return status;
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

/// Notes the first library that the linker does not find.
void look_at(const char* module, EngineStatus& status) {
  try {
    const std::string libraries = list_libraries(SharedModule::find(module).string());
    const std::size_t missing = libraries.find("not found");
    if (missing != std::string::npos) {
      status.reason = line_at(libraries, missing);
    } else {
      status.usable = true;
    }
  } catch (const Error& error) {
    status.reason = error.what();
  }
}

}  // namespace

EngineStatus engine_file_status() {
  EngineStatus status;
  status.built = HETEROPERF_WITH_TORCH != 0;
  if (!status.built) {
    status.reason = "not built with LibTorch (configure with -DHETEROPERF_TORCH=ON)";
    return status;
  }
  status.version = HETEROPERF_LIBTORCH_VERSION;
  look_at("engine", status);
  return status;
}

EngineStatus cuda_file_status() {
  EngineStatus status;
  status.built = HETEROPERF_WITH_CUDA != 0;
  if (!status.built) {
    status.reason = "not built with CUDA (configure with -DHETEROPERF_CUDA=ON)";
    return status;
  }
  status.version = HETEROPERF_CUDA_VERSION;
  if (has_nvidia_driver()) {
    look_at("cuda", status);
  } else {
    status.reason = no_nvidia_driver;
  }
  return status;
}

}  // namespace heteroperf
