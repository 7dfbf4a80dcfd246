install(TARGETS heteroperf RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
foreach(module IN ITEMS engine mpi)
  if(TARGET heteroperf_${module})
    install(TARGETS heteroperf_${module}
            LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/heteroperf")
  endif()
endforeach()
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
