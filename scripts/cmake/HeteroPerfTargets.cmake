# heteroperf_compile_in_batches(<target>): with HETEROPERF_UNITY, 32 sources are compiled at once and
# share the cost of their headers and templates: an eighth to a quarter less than 16 at once. Names in
# unnamed namespaces must differ within a target.
function(heteroperf_compile_in_batches target)
  if(HETEROPERF_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
    # Warns of types in headers; a source in a batch is none. Headers are checked alone.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# heteroperf_compile(<target> [OPTIMIZATION -O3]): a release is built with -O2; where loops are
# measured with -O3, where words and files are made with -O1.
function(heteroperf_compile target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OPTIMIZATION" "")
  if(NOT arg_OPTIMIZATION)
    set(arg_OPTIMIZATION -O2)
  endif()
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${arg_OPTIMIZATION}>)
  heteroperf_compile_in_batches(${target})
endfunction()

# heteroperf_add_headers(<target> <headers>): every header compiles alone. One with a source of its name
# does because that source includes it first (tests/architecture holds sources to it); the others are
# compiled alone (VERIFY_INTERFACE_HEADER_SETS), which takes a second or two each.
function(heteroperf_add_headers target headers)
  get_target_property(with_source ${target} SOURCES)
  list(TRANSFORM with_source REPLACE "\\.cpp$" ".hpp")
  set(without_source ${headers})
  list(REMOVE_ITEM without_source ${with_source})
  list(REMOVE_ITEM headers "" ${without_source})
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers}
    FILE_SET without_source TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${without_source})
  set_target_properties(${target} PROPERTIES
    VERIFY_INTERFACE_HEADER_SETS ON INTERFACE_HEADER_SETS_TO_VERIFY without_source)
endfunction()

# heteroperf_add_library(<name> SOURCES a.cpp… HEADERS a.hpp… DEPENDS target… [PRIVATE target…]
#                        [OPTIMIZATION -O3])
#
# One static library per row of the layer table (tests/architecture/layers.txt), alias
# heteroperf::<name>. Includes are written from the repository root.
function(heteroperf_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OPTIMIZATION" "SOURCES;HEADERS;DEPENDS;PRIVATE")
  add_library(heteroperf_${name} STATIC ${arg_SOURCES})
  add_library(heteroperf::${name} ALIAS heteroperf_${name})
  heteroperf_add_headers(heteroperf_${name} "${arg_HEADERS}")
  set_target_properties(heteroperf_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name})
  target_link_libraries(heteroperf_${name} PUBLIC fmt::fmt ${arg_DEPENDS}
                                           PRIVATE $<BUILD_INTERFACE:heteroperf_flags>
                                                   ${arg_PRIVATE})
  target_compile_features(heteroperf_${name} PUBLIC cxx_std_20)
  heteroperf_compile(heteroperf_${name} OPTIMIZATION ${arg_OPTIMIZATION})
endfunction()

# heteroperf_find_libraries(<target>): what is installed finds its libraries where they were linked. It
# is built with the paths it is installed with: CMake would lengthen others by colons, and the loader
# takes an empty path for the folder that it is started in.
function(heteroperf_find_libraries target)
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# heteroperf_add_module(<name> SOURCES… LINK target… [OPTIMIZATION -O3]): a shared module loaded on
# first use; it lies beside the program while building and in lib/heteroperf after installation.
function(heteroperf_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OPTIMIZATION" "SOURCES;LINK")
  add_library(heteroperf_${name} MODULE ${arg_SOURCES})
  set_target_properties(heteroperf_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/heteroperf" PREFIX "lib")
  heteroperf_find_libraries(heteroperf_${name})
  target_link_libraries(heteroperf_${name} PRIVATE heteroperf_flags ${arg_LINK})
  heteroperf_compile(heteroperf_${name} OPTIMIZATION ${arg_OPTIMIZATION})
  set_property(GLOBAL APPEND PROPERTY HETEROPERF_MODULES heteroperf_${name})
endfunction()
