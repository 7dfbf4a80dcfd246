# Options, the language level and the one target that carries warnings.
include(GNUInstallDirs)

foreach(part IN ITEMS TORCH CUDA MPI NCCL HDF5)
  set(HETEROPERF_${part} AUTO CACHE STRING "Build with ${part}: AUTO, ON or OFF")
  set_property(CACHE HETEROPERF_${part} PROPERTY STRINGS AUTO ON OFF)
endforeach()
option(HETEROPERF_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(HETEROPERF_PLAIN_TESTS "With the tests: those that LibTorch, MPI, CUDA and HDF5 do not change" ON)
option(HETEROPERF_CHECK_HEADERS "With the tests: one that compiles every header alone" OFF)
option(HETEROPERF_BENCHMARKS "Build the Google Benchmark programs of tests/bench" OFF)
option(HETEROPERF_UNITY "Compile sources in batches: less in all, more after a change" ON)
set(HETEROPERF_SANITIZER "" CACHE STRING "address,undefined or thread")
option(HETEROPERF_FUZZ "Build the programs of tests/fuzz for libFuzzer (clang)" OFF)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set_property(CACHE CMAKE_BUILD_TYPE PROPERTY VALUE Release)
endif()

add_library(heteroperf_flags INTERFACE)
target_compile_features(heteroperf_flags INTERFACE cxx_std_20)
target_compile_options(heteroperf_flags INTERFACE -Wall -Wextra -Wpedantic -Wundef -Wshadow
                                                  -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on `"text" + std::string` (GCC bug 105651).
  target_compile_options(heteroperf_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Collects its garbage from 1 GB on: an eighth less time, at most 2.3 GB for a batch.
  target_compile_options(heteroperf_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
if(HETEROPERF_SANITIZER)
  # Instrumented code makes GCC warn of uninitialised variants that are not.
  target_compile_options(heteroperf_flags INTERFACE -fsanitize=${HETEROPERF_SANITIZER}
                                                    -fno-omit-frame-pointer
                                                    -Wno-maybe-uninitialized)
  target_link_options(heteroperf_flags INTERFACE -fsanitize=${HETEROPERF_SANITIZER})
endif()

if(HETEROPERF_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HETEROPERF_FUZZ needs libFuzzer (the compiler is ${CMAKE_CXX_COMPILER_ID}). "
                        "Configure with -DCMAKE_CXX_COMPILER=clang++, as the preset fuzz does")
  endif()
  target_compile_options(heteroperf_flags INTERFACE
    -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(heteroperf_flags INTERFACE -fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    target_compile_options(heteroperf_flags INTERFACE
      "SHELL:$<$<COMPILE_LANGUAGE:CXX>:-include ${PROJECT_SOURCE_DIR}/tests/fuzz/source_location.hpp>")
  endif()
endif()

find_program(HETEROPERF_CCACHE ccache)
if(HETEROPERF_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HETEROPERF_CCACHE}")
endif()

# GCC knows mold since version 12.
find_program(HETEROPERF_MOLD_PROGRAM mold)
if(HETEROPERF_MOLD_PROGRAM)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold HETEROPERF_MOLD)
  if(HETEROPERF_MOLD)
    target_link_options(heteroperf_flags INTERFACE -fuse-ld=mold)
  endif()
endif()
