# The relocatable planner: one program that needs no shared library and no other file, so that it runs on any Linux of this
# kind of processor (docs/adr/0040-a-fast-loop.md). scripts/packages builds it and writes it into an archive.
set(static_libraries "")
foreach(library yaml-cpp expat crypto z)
  string(MAKE_C_IDENTIFIER STATIC_${library} variable)
  find_library(${variable} lib${library}.a)
  list(APPEND static_libraries ${${variable}})
endforeach()
if(static_libraries MATCHES NOTFOUND)
  message(STATUS "A library is missing for the relocatable planner: ${static_libraries}")
  return()
endif()
# Its objects are those of planner; only the libraries of other projects differ. mimalloc is left out: Debian has no static one.
set(archives "")
foreach(folder ${PLIMSOLL_FOLDERS})
  if(NOT folder MATCHES "^(runtime|calibrate|python)(/|$)")
    string(REPLACE "/" "_" name ${folder})
    list(APPEND archives plimsoll_${name})
  endif()
endforeach()
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
add_executable(planner_relocatable ${PROJECT_SOURCE_DIR}/planner/commands/planner_main.cpp
  ${PROJECT_SOURCE_DIR}/cmake/fmt_static.cpp)
add_dependencies(planner_relocatable ${archives})
set_target_properties(planner_relocatable PROPERTIES OUTPUT_NAME planner
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/relocatable)
# The linker warns of dlopen and getaddrinfo: planner's doctor asks no driver where it is linked so, and nothing uses sockets.
target_link_options(planner_relocatable PRIVATE -static LINKER:--no-warnings)
target_link_libraries(planner_relocatable PRIVATE plimsoll_options -Wl,--start-group ${files} -Wl,--end-group
  ${static_libraries})

# It is a component for the archive alone: a full installation has the program that shares libraries. The licences of what is
# linked in come along, as Debian's packages have them.
install(TARGETS planner_relocatable RUNTIME DESTINATION bin COMPONENT relocatable EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION share/doc/plimsoll COMPONENT relocatable EXCLUDE_FROM_ALL)
foreach(package libc6-dev libstdc++-12-dev libfmt-dev libyaml-cpp-dev libexpat1-dev libssl-dev zlib1g-dev nlohmann-json3-dev libcli11-dev
    libtomlplusplus-dev libboost-dev libeigen3-dev)
  install(FILES /usr/share/doc/${package}/copyright RENAME ${package} OPTIONAL
    DESTINATION share/doc/plimsoll/licences COMPONENT relocatable EXCLUDE_FROM_ALL)
endforeach()
