# A relocatable tree: bin/heteroperf finds its modules in ../lib/heteroperf, and a module finds
# LibTorch in lib/heteroperf/libtorch, else it and MPI where they were found when it was built. The
# component `libtorch` puts it there, about 0.5 GB: then nothing of the checkout is needed any more.
install(TARGETS heteroperf RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
get_property(modules GLOBAL PROPERTY HETEROPERF_MODULES)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/heteroperf")
endif()
if(HETEROPERF_WITH_TORCH)
  set(libtorch_home "${CMAKE_INSTALL_LIBDIR}/heteroperf/libtorch")
  install(CODE "
    if(NOT CMAKE_INSTALL_COMPONENT AND
       NOT EXISTS \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${libtorch_home}\")
      message(STATUS \"LibTorch stays in ${LibTorch_PREFIX}/lib, which must not go. To have a copy:\")
      message(STATUS \"cmake --install ${PROJECT_BINARY_DIR} --prefix \${CMAKE_INSTALL_PREFIX} --component libtorch\")
    endif()")
  install(CODE "
    file(GET_RUNTIME_DEPENDENCIES MODULES \"$<TARGET_FILE:heteroperf_engine>\"
         RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR elsewhere
         DIRECTORIES \"${LibTorch_PREFIX}/lib\" POST_EXCLUDE_REGEXES \"^/lib\" \"^/usr/lib\")
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${libtorch_home}\" TYPE SHARED_LIBRARY
         FOLLOW_SYMLINK_CHAIN FILES \${found})"
    COMPONENT libtorch EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY scripts/samples DESTINATION "${CMAKE_INSTALL_DATADIR}/heteroperf")
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES results/report/chartjs/LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        RENAME LICENSE.chartjs)
install(DIRECTORY results/schemas DESTINATION "${CMAKE_INSTALL_DATADIR}/heteroperf")
