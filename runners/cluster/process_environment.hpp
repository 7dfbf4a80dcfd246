#pragma once

#include <map>
#include <string>
#include <vector>

namespace heteroperf {

/// One shared object that the process has mapped.
struct LoadedLibrary {
  std::string path;
  std::string build_id;  ///< lower-case hex of the NT_GNU_BUILD_ID note; empty when it has none
};

/// Sorted by path; the program itself and the kernel's vdso are left out.
std::vector<LoadedLibrary> loaded_libraries();

/// The variables that steer a run, by the prefixes NCCL_ OMPI_ UCX_ CUDA_ OMP_ TORCH_ MKL_ LD_
/// SLURM_ HETEROPERF_. Values of names that contain TOKEN, SECRET, PASS or KEY read "redacted".
/// `environment` is a null-terminated list of NAME=value, as in environ(7).
std::map<std::string, std::string> steering_variables(const char* const* environment);
/// Of this process.
std::map<std::string, std::string> steering_variables();

}  // namespace heteroperf
