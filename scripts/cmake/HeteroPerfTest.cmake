# heteroperf_add_test(<path> SOURCES a.cpp… LINK target… [RANKS 1 2 4] [LABELS …] [TIMEOUT s])
#
# <path> mirrors the source tree ("metrics/statistics"). One GoogleTest program, one ctest entry.
# With RANKS the program is started once per count under mpirun as "<path>/ranks<N>" (label
# ranks<N>); such tests exist only where MPI is built in.
function(heteroperf_add_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;LINK;RANKS;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(HETEROPERF_SANITIZER)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  string(REPLACE "/" "_" target "test_${path}")
  add_executable(${target} ${arg_SOURCES})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  # Half of a test's build time is optimisation that no test needs.
  target_compile_options(${target} PRIVATE -O1)
  target_link_libraries(${target} PRIVATE heteroperf_flags ${arg_LINK} GTest::gtest)
  if(NOT arg_RANKS)
    target_link_libraries(${target} PRIVATE GTest::gtest_main)
    add_test(NAME ${path} COMMAND ${target})
    # Skipped when every test in it is: nothing passed, and no failure follows the list.
    set_tests_properties(${path} PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
      SKIP_REGULAR_EXPRESSION
      "\\[  PASSED  \\] 0 tests\\.\n\\[  SKIPPED \\] [0-9]+ tests?, listed below:\n(\\[  SKIPPED \\] [^\n]*\n)+\n*$")
  else()
    foreach(ranks IN LISTS arg_RANKS)
      add_test(NAME ${path}/ranks${ranks}
               COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(${path}/ranks${ranks} PROPERTIES
        LABELS "ranks;ranks${ranks};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2
        ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1")
    endforeach()
  endif()
endfunction()
