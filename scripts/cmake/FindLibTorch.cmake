# FindLibTorch: imported targets LibTorch::cpu and LibTorch::cpu_link_test-verified libraries.
#
# Looks in LibTorch_ROOT (the official archive, or any folder with include/ATen and lib), in the
# project's .venv, and in the torch package of an installed Python. Links libtorch_cpu and libc10
# alone: libtorch and libtorch_cuda would need a GPU stack that a CPU run does not.
#
# Result: LibTorch_FOUND, LibTorch_VERSION, LibTorch_DIR_FOUND, targets
#   LibTorch::cpu     headers, libtorch_cpu, libc10, and the OpenMP runtime they use
set(_libtorch_candidates ${LibTorch_ROOT} $ENV{LibTorch_ROOT})
file(GLOB _libtorch_wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
list(APPEND _libtorch_candidates ${_libtorch_wheels})
find_program(LibTorch_PYTHON python3)
if(LibTorch_PYTHON)
  execute_process(
    COMMAND "${LibTorch_PYTHON}" -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _libtorch_python_path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _libtorch_candidates ${_libtorch_python_path})
endif()

find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${_libtorch_candidates}
          PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT LibTorch_INCLUDE_DIR)
  find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h)
endif()
get_filename_component(LibTorch_PREFIX "${LibTorch_INCLUDE_DIR}" DIRECTORY)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS "${LibTorch_PREFIX}/lib")
find_library(LibTorch_C10_LIBRARY c10 HINTS "${LibTorch_PREFIX}/lib")
# The runtime that libtorch_cpu itself uses: a second one would start its own threads.
file(GLOB LibTorch_OPENMP_LIBRARY "${LibTorch_PREFIX}/lib/libgomp*.so*"
     "${LibTorch_PREFIX}.libs/libgomp*.so*")
if(LibTorch_OPENMP_LIBRARY)
  list(GET LibTorch_OPENMP_LIBRARY 0 LibTorch_OPENMP_LIBRARY)
endif()

if(EXISTS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h")
  set(_libtorch_version_file "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h")
else()
  set(_libtorch_version_file "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h")
endif()
if(EXISTS "${_libtorch_version_file}")
  file(STRINGS "${_libtorch_version_file}" _libtorch_lines
       REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
         LibTorch_VERSION "${_libtorch_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(LibTorch::cpu INTERFACE "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}")
  target_link_options(LibTorch::cpu INTERFACE "LINKER:-rpath-link,${LibTorch_PREFIX}/lib"
                                              "LINKER:--allow-shlib-undefined")
  # The wheel is built with NDEBUG; without it at::RecordFunction has another layout and operators
  # silently go missing from an observer.
  target_compile_definitions(LibTorch::cpu INTERFACE NDEBUG)
  target_compile_options(LibTorch::cpu INTERFACE -fopenmp)
  if(LibTorch_OPENMP_LIBRARY)
    target_link_libraries(LibTorch::cpu INTERFACE "${LibTorch_OPENMP_LIBRARY}")
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(LibTorch::cpu INTERFACE OpenMP::OpenMP_CXX)
  endif()

  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES LibTorch::cpu)
  set(CMAKE_REQUIRED_FLAGS "-std=c++20 -Wno-undef")
  check_cxx_source_compiles("#include <ATen/core/Tensor.h>
    #include <ATen/ops/empty.h>
    int main() { return static_cast<int>(at::empty({0}).numel()); }" LibTorch_LINKS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT LibTorch_LINKS)
    set(LibTorch_FOUND FALSE)
    message(STATUS "LibTorch ${LibTorch_VERSION} in ${LibTorch_PREFIX} does not link "
                   "(see CMakeFiles/CMakeError.log)")
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_PYTHON)
