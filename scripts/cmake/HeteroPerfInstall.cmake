# A relocatable tree: bin/heteroperf finds its modules in ../lib/heteroperf, and a module finds
# LibTorch or MPI where they were found when it was built.
install(TARGETS heteroperf RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
get_property(modules GLOBAL PROPERTY HETEROPERF_MODULES)
if(modules)
  install(TARGETS ${modules} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/heteroperf")
endif()
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES results/report/chartjs/LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        RENAME LICENSE.chartjs)
install(DIRECTORY results/schemas DESTINATION "${CMAKE_INSTALL_DATADIR}/heteroperf")
