# heteroperf_add_library(<name> SOURCES a.cpp… HEADERS a.hpp… DEPENDS target… [PRIVATE target…])
#
# One static library per row of the layer table (tests/architecture/layers.txt), alias
# heteroperf::<name>. Includes are written from the repository root. Every header compiles alone
# (VERIFY_INTERFACE_HEADER_SETS).
function(heteroperf_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE")
  add_library(heteroperf_${name} STATIC ${arg_SOURCES})
  add_library(heteroperf::${name} ALIAS heteroperf_${name})
  target_sources(heteroperf_${name} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}"
                                           FILES ${arg_HEADERS})
  set_target_properties(heteroperf_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ON)
  target_link_libraries(heteroperf_${name} PUBLIC fmt::fmt ${arg_DEPENDS}
                                           PRIVATE $<BUILD_INTERFACE:heteroperf_flags>
                                                   ${arg_PRIVATE})
  target_compile_features(heteroperf_${name} PUBLIC cxx_std_20)
endfunction()

# heteroperf_add_module(<name> SOURCES… LINK target…): a shared module loaded on first use; it lies
# beside the program while building and in lib/heteroperf after installation.
function(heteroperf_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_library(heteroperf_${name} MODULE ${arg_SOURCES})
  set_target_properties(heteroperf_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib/heteroperf" PREFIX "lib"
    INSTALL_RPATH_USE_LINK_PATH ON)
  target_link_libraries(heteroperf_${name} PRIVATE heteroperf_flags ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY HETEROPERF_MODULES heteroperf_${name})
endfunction()
