# heteroperf_add_test(<path> [OWN_PROGRAM] SOURCES a.cpp… LINK target… [RANKS 1 2 4] [LABELS …]
#                     [TIMEOUT s])
#
# <path> mirrors the source tree ("metrics/statistics") and names one ctest entry. The tests of a
# folder are one GoogleTest program, "test_" and the folder with _ for /, that runs for each entry
# the tests of its sources: few links, large batches. OWN_PROGRAM makes one of this entry alone,
# "test_" and the path; so does RANKS, which starts it once per count under mpirun as
# "<path>/ranks<N>" (label ranks<N>) and exists only where MPI is built in.
function(heteroperf_add_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OWN_PROGRAM" "TIMEOUT" "SOURCES;LINK;RANKS;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(HETEROPERF_SANITIZER)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  if(arg_OWN_PROGRAM OR arg_RANKS)
    string(REPLACE "/" "_" target "test_${path}")
    set(main GTest::gtest_main)
    set(told_sources)
  else()
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}")
    string(REGEX REPLACE "^unit/" "" folder "${folder}")
    string(REPLACE "/" "_" target "test_${folder}")
    set(main heteroperf_main_of_sources)
    set(told_sources ${arg_SOURCES})
    list(FILTER told_sources INCLUDE REGEX "_(test|cases)\\.cpp$")
  endif()
  if(NOT TARGET ${target})
    add_executable(${target})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
    # Half of a test's build time is optimisation that no test needs.
    target_compile_options(${target} PRIVATE -O1)
    target_link_libraries(${target} PRIVATE heteroperf_flags GTest::gtest)
    heteroperf_compile_in_batches(${target})
  endif()
  target_sources(${target} PRIVATE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  if(NOT arg_RANKS)
    target_link_libraries(${target} PRIVATE ${main})
    add_test(NAME ${path} COMMAND ${target} ${told_sources})
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
