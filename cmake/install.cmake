# Programs and presets; libraries and headers come with the first public embedding API.
include(GNUInstallDirs)
install(TARGETS planner planner-run planner-calibrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET planner-run-mpi)
  install(TARGETS planner-run-mpi planner-calibrate-mpi RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY models/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll)
