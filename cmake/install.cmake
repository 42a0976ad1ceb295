# Where `cmake --install` puts things, by component. Each component is a package of Debian
# (cmake/packages.cmake): planner, runtime, development and, where the module is built, python.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# planner: one program with its presets built in. Copies of them are there to start a file from.
# Man pages and completions of the shells belong to this component as well.
install(TARGETS planner RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT planner)
install(DIRECTORY models/presets DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll COMPONENT planner)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT planner)
# Manual pages and completions (cmake/shell.cmake), where Debian's man, bash, zsh and fish look.
if(TARGET shell_files)
  set(shell ${PROJECT_BINARY_DIR}/shell)
  install(DIRECTORY ${shell}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT planner
    FILES_MATCHING PATTERN "*.1")
  install(FILES ${shell}/planner.bash RENAME planner COMPONENT planner
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${shell}/_planner COMPONENT planner
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${shell}/planner.fish COMPONENT planner
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# runtime: what trains and measures.
foreach(program planner-run planner-calibrate planner-run-mpi planner-calibrate-mpi)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  endif()
endforeach()

# development: headers, static libraries and a CMake package of all that predicts and searches.
# Folders of command lines are left out, and so is the runtime.
set(public_folders ${PLIMSOLL_FOLDERS})
list(FILTER public_folders EXCLUDE REGEX
  "^(runtime|calibrate|python|command_line)(/|$)|^planner/(cli|commands|describe|doctor|init|terminal)$")
set(public_libraries "")
foreach(folder ${public_folders})
  string(REPLACE "/" "_" name ${folder})
  list(APPEND public_libraries plimsoll_${name})
  set_target_properties(plimsoll_${name} PROPERTIES EXPORT_NAME ${name})
  file(GLOB headers CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/${folder}/*.h ${PROJECT_SOURCE_DIR}/${folder}/*.def)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plimsoll/${folder}
    COMPONENT development)
endforeach()
foreach(name models options)  # the first stands for all folders in it
  list(APPEND public_libraries plimsoll_${name})
  set_target_properties(plimsoll_${name} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${public_libraries} EXPORT plimsoll
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# CMake strips programs only; debug information is nine tenths of a static library.
install(CODE "
  if(CMAKE_INSTALL_DO_STRIP)
    file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libplimsoll_*.a\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \${libraries} COMMAND_ERROR_IS_FATAL ANY)
  endif()" COMPONENT development)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/plimsoll)
install(EXPORT plimsoll NAMESPACE plimsoll:: FILE plimsollTargets.cmake
  DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(cmake/plimsollConfig.cmake.in
  ${PROJECT_BINARY_DIR}/plimsollConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/plimsollConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/plimsollConfig.cmake
  ${PROJECT_BINARY_DIR}/plimsollConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT development)
