# Programs and presets; libraries and headers come with the first public embedding API.
include(GNUInstallDirs)
install(TARGETS planner planner-run planner-calibrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY models/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll)
