# Finds what is there. AUTO parts that are missing become OFF and are named in the summary.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Eigen3 REQUIRED NO_MODULE)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(LibArchive REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(yaml_cpp REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)

# heteroperf_optional(<PART> <found-variable>): settles HETEROPERF_WITH_<PART> to 0 or 1.
function(heteroperf_optional part found)
  if(HETEROPERF_${part} STREQUAL "ON" AND NOT ${found})
    message(FATAL_ERROR "HETEROPERF_${part}=ON, but it was not found (see the messages above). "
                        "Run scripts/quickstart.sh, or configure with -DHETEROPERF_${part}=OFF")
  endif()
  set(value 0)
  if(${found} AND NOT HETEROPERF_${part} STREQUAL "OFF")
    set(value 1)
  endif()
  set(HETEROPERF_WITH_${part} ${value} PARENT_SCOPE)
endfunction()

if(NOT HETEROPERF_TORCH STREQUAL "OFF")
  find_package(LibTorch 2.1)
endif()
heteroperf_optional(TORCH LibTorch_FOUND)

# The GPU side of the engine: a module of its own, which a run on the CPU never loads. AUTO builds it
# where a GPU is, and with the tests, so that CI compiles it on machines with a toolkit alone.
set(HETEROPERF_CUDA_FOUND FALSE)
if(HETEROPERF_CUDA STREQUAL "ON" OR EXISTS "/dev/nvidiactl" OR HETEROPERF_TESTS)
  set(wants_cuda TRUE)
endif()
if(HETEROPERF_WITH_TORCH AND wants_cuda AND NOT HETEROPERF_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS "${LibTorch_PREFIX}/lib" NO_DEFAULT_PATH)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS "${LibTorch_PREFIX}/lib" NO_DEFAULT_PATH)
  mark_as_advanced(LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND LibTorch_CUDA_LIBRARY
     AND LibTorch_C10_CUDA_LIBRARY)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    if(NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} "${CUDAToolkit_NVCC_EXECUTABLE}")
    endif()
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      set(HETEROPERF_CUDA_FOUND TRUE)
    endif()
  endif()
endif()
heteroperf_optional(CUDA HETEROPERF_CUDA_FOUND)

if(NOT HETEROPERF_MPI STREQUAL "OFF")
  find_package(MPI COMPONENTS CXX)
endif()
heteroperf_optional(MPI MPI_CXX_FOUND)

if(NOT HETEROPERF_NCCL STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  find_package(NCCL)
endif()
set(HETEROPERF_NCCL_FOUND FALSE)
if(CUDAToolkit_FOUND AND NCCL_FOUND)
  set(HETEROPERF_NCCL_FOUND TRUE)
endif()
heteroperf_optional(NCCL HETEROPERF_NCCL_FOUND)

if(NOT HETEROPERF_HDF5 STREQUAL "OFF")
  enable_language(C)
  find_package(HDF5 COMPONENTS C HL)
endif()
heteroperf_optional(HDF5 HDF5_FOUND)

function(heteroperf_print_summary)
  message(STATUS "HeteroPerf ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, "
                 "LibTorch ${HETEROPERF_WITH_TORCH} ${LibTorch_VERSION}, "
                 "CUDA ${HETEROPERF_WITH_CUDA}, MPI ${HETEROPERF_WITH_MPI}, "
                 "NCCL ${HETEROPERF_WITH_NCCL} ${NCCL_VERSION}, HDF5 ${HETEROPERF_WITH_HDF5} ${HDF5_VERSION}, "
                 "tests ${HETEROPERF_TESTS}, benchmarks ${HETEROPERF_BENCHMARKS}")
endfunction()
