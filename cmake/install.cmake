# Programs and presets; libraries and headers come with the first public embedding API.
include(GNUInstallDirs)
install(TARGETS planner planner-run planner-calibrate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET planner-run-mpi)
  install(TARGETS planner-run-mpi planner-calibrate-mpi RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY models/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll)
# Manual pages and completions (cmake/shell.cmake), where Debian's man, bash, zsh and fish look.
install(DIRECTORY ${PROJECT_BINARY_DIR}/shell/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  FILES_MATCHING PATTERN "*.1")
install(FILES ${PROJECT_BINARY_DIR}/shell/planner.bash RENAME planner
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/shell/_planner DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${PROJECT_BINARY_DIR}/shell/planner.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
