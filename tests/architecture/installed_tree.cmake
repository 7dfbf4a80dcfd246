# Installs into a folder, moves it, and runs the program there: the tree must not depend on where
# it was built or installed. Neither here nor where they were built do binaries look for libraries in
# the folder that they are started in, which is what the loader takes an empty path for.
#   cmake -DBUILD_DIR=… -DWORK_DIR=… -DWITH_TORCH=0|1 -DREADELF=… -P installed_tree.cmake
function(expect_success)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors
                  WORKING_DIRECTORY "${WORK_DIR}")
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN} ended with ${code}\n${output}${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_no_empty_path)
  foreach(binary IN LISTS ARGN)
    expect_success("${READELF}" --dynamic --wide "${binary}")
    if(output MATCHES "R(UN)?PATH[^\n]*(\\[:|::|:\\])")
      message(FATAL_ERROR "${binary} looks for libraries in the current folder:\n${CMAKE_MATCH_0}")
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
file(MAKE_DIRECTORY "${WORK_DIR}")
expect_success("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/installed")
file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/moved")
set(program "${WORK_DIR}/moved/bin/heteroperf")
unset(ENV{HETEROPERF_MODULE_PATH})

expect_success("${program}" --help)
if(NOT output MATCHES "heteroperf")
  message(FATAL_ERROR "--help says:\n${output}")
endif()

file(GLOB modules "${WORK_DIR}/moved/lib*/heteroperf/*.so")
file(GLOB built "${BUILD_DIR}/suite/heteroperf" "${BUILD_DIR}/lib/heteroperf/*.so")
expect_no_empty_path("${program}" ${modules} ${built})

if(WITH_TORCH)
  if(NOT modules MATCHES "libheteroperf_engine")
    message(FATAL_ERROR "no engine module below ${WORK_DIR}/moved (found: ${modules})")
  endif()
  # Two steps of the smallest model: the module is found, and it finds LibTorch.
  expect_success("${program}" run llm --size nano --steps 2 --ranks 1 --out "${WORK_DIR}/run")
endif()
file(REMOVE_RECURSE "${WORK_DIR}")
