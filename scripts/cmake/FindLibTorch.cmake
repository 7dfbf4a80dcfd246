# FindLibTorch: the imported target LibTorch::cpu, its headers and the libraries of a CPU run.
#
# find_package(Torch) does not serve: with a CUDA wheel it insists on a CUDA toolkit. A CPU run
# links libtorch_cpu and libc10 alone; libtorch and libtorch_cuda would bring the GPU stack in.
#
# Candidates, best first; the first one of at least the version asked for is taken:
#   LibTorch_ROOT    CMake or environment variable: the official archive, unpacked, or any folder
#                    with include/ATen and lib
#   .venv            the wheel that scripts/setup.sh installs
#   python3          the torch package of an installed Python
#   the usual system folders and CMAKE_PREFIX_PATH
#
# Result: LibTorch_FOUND, LibTorch_VERSION, LibTorch_PREFIX, LibTorch_CPU_LIBRARY,
# LibTorch_C10_LIBRARY, LibTorch_INCLUDE_DIR, and LibTorch::cpu. A LibTorch that cannot be linked
# and started (a missing libcudart, the ABI from before C++11) counts as not found.

function(_libtorch_read_version prefix result)
  set(version "")
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS "${prefix}/include/${header}")
      file(STRINGS "${prefix}/include/${header}" lines
           REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      if(lines MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
        set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
      endif()
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# A folder found before that has gone, or that LibTorch_ROOT overrides, is looked for again.
set(_libtorch_roots ${LibTorch_ROOT} $ENV{LibTorch_ROOT})
if(NOT EXISTS "${LibTorch_INCLUDE_DIR}/ATen/core/Tensor.h"
   OR NOT "${_libtorch_roots}" STREQUAL "${LibTorch_SEARCHED_ROOTS}")
  unset(LibTorch_INCLUDE_DIR CACHE)
  unset(LibTorch_CPU_LIBRARY CACHE)
  unset(LibTorch_C10_LIBRARY CACHE)
endif()
set(LibTorch_SEARCHED_ROOTS "${_libtorch_roots}" CACHE INTERNAL "LibTorch_ROOT of the last search")

if(NOT LibTorch_INCLUDE_DIR)
  set(_libtorch_candidates ${_libtorch_roots})
  file(GLOB _libtorch_wheels "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  list(APPEND _libtorch_candidates ${_libtorch_wheels})
  find_program(LibTorch_PYTHON python3)
  if(LibTorch_PYTHON)
    # Finds the package without importing it, which takes seconds and may fail.
    execute_process(
      COMMAND "${LibTorch_PYTHON}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _libtorch_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND _libtorch_candidates ${_libtorch_python})
  endif()
  foreach(_libtorch_candidate IN LISTS _libtorch_candidates)
    _libtorch_read_version("${_libtorch_candidate}" _libtorch_version)
    if(_libtorch_version VERSION_LESS "${LibTorch_FIND_VERSION}")
      message(STATUS "Passing over LibTorch \"${_libtorch_version}\" in ${_libtorch_candidate}")
      continue()
    endif()
    find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h PATHS "${_libtorch_candidate}/include"
              NO_DEFAULT_PATH)
  endforeach()
  find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h)
endif()

get_filename_component(LibTorch_PREFIX "${LibTorch_INCLUDE_DIR}" DIRECTORY)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS "${LibTorch_PREFIX}/lib")
find_library(LibTorch_C10_LIBRARY c10 HINTS "${LibTorch_PREFIX}/lib")
_libtorch_read_version("${LibTorch_PREFIX}" LibTorch_VERSION)

# The OpenMP runtime that libtorch_cpu itself uses: a second one would start threads of its own.
file(GLOB LibTorch_OPENMP_LIBRARY "${LibTorch_PREFIX}/lib/libgomp*.so*"
     "${LibTorch_PREFIX}.libs/libgomp*.so*")
if(LibTorch_OPENMP_LIBRARY)
  list(GET LibTorch_OPENMP_LIBRARY 0 LibTorch_OPENMP_LIBRARY)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  # Behind the system's folders: the wheel brings headers of another fmt, whose functions nothing
  # here links.
  target_compile_options(LibTorch::cpu INTERFACE
    "SHELL:-idirafter \"${LibTorch_INCLUDE_DIR}\""
    "SHELL:-idirafter \"${LibTorch_INCLUDE_DIR}/torch/csrc/api/include\"")
  target_link_libraries(LibTorch::cpu INTERFACE "${LibTorch_CPU_LIBRARY}" "${LibTorch_C10_LIBRARY}")
  # libtorch_cpu finds the libraries it needs through its own run path, which the linker of an
  # executable does not follow everywhere.
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

  # A tensor, and a std::string across the border; started as well, so that a library missing at
  # run time shows here and not in the middle of a run.
  if(NOT "${LibTorch_TESTED_PREFIX}" STREQUAL "${LibTorch_PREFIX} ${LibTorch_VERSION}")
    unset(LibTorch_STARTS CACHE)
  endif()
  set(LibTorch_TESTED_PREFIX "${LibTorch_PREFIX} ${LibTorch_VERSION}"
      CACHE INTERNAL "What LibTorch_STARTS speaks of")
  set(_libtorch_test "#include <ATen/Version.h>
    #include <ATen/core/Tensor.h>
    #include <ATen/ops/empty.h>
    int main() { return at::empty({0}).numel() == 0 && !at::show_config().empty() ? 0 : 1; }")
  set(CMAKE_REQUIRED_LIBRARIES LibTorch::cpu)
  set(CMAKE_REQUIRED_FLAGS "-std=c++20 -Wno-undef")
  if(CMAKE_CROSSCOMPILING)
    include(CheckCXXSourceCompiles)
    check_cxx_source_compiles("${_libtorch_test}" LibTorch_STARTS)
  else()
    include(CheckCXXSourceRuns)
    check_cxx_source_runs("${_libtorch_test}" LibTorch_STARTS)
  endif()
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT LibTorch_STARTS)
    set(LibTorch_FOUND FALSE)
    message(STATUS "LibTorch ${LibTorch_VERSION} in ${LibTorch_PREFIX} does not link or start "
                   "(see CMakeFiles/CMakeError.log or CMakeConfigureLog.yaml in the build folder)")
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_PYTHON)
