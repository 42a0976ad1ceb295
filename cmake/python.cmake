# Python is optional: without pybind11 everything else builds (docs/adr/0046-one-tree-of-commands.md).
find_package(Python3 COMPONENTS Interpreter Development.Module)
if(Python3_Development.Module_FOUND AND NOT PLIMSOLL_SANITIZER)
  find_package(pybind11 2.10 CONFIG QUIET)
endif()
set(PLIMSOLL_PYTHON_FOLDER lib/python3/dist-packages CACHE STRING
  "Where `cmake --install` puts the Python package, below the prefix")

# add_python_module(): the package plimsoll in build/python, which PYTHONPATH may name. Its module
# _core is python/module_main.cpp with the planner's libraries.
function(add_python_module)
  set(folder ${PROJECT_BINARY_DIR}/python/plimsoll)
  pybind11_add_module(python_module MODULE NO_EXTRAS ${PROJECT_SOURCE_DIR}/python/module_main.cpp)
  target_link_libraries(python_module PRIVATE plimsoll_python)
  set_target_properties(python_module PROPERTIES
    OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${folder})
  file(GLOB files RELATIVE ${PROJECT_SOURCE_DIR}/python/plimsoll CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/python/plimsoll/*.py ${PROJECT_SOURCE_DIR}/python/plimsoll/*.pyi
    ${PROJECT_SOURCE_DIR}/python/plimsoll/py.typed)
  set(copies "")
  foreach(file ${files})
    add_custom_command(OUTPUT ${folder}/${file}
      COMMAND ${CMAKE_COMMAND} -E copy ${PROJECT_SOURCE_DIR}/python/plimsoll/${file} ${folder}/${file}
      DEPENDS ${PROJECT_SOURCE_DIR}/python/plimsoll/${file} VERBATIM)
    list(APPEND copies ${folder}/${file})
    install(FILES ${PROJECT_SOURCE_DIR}/python/plimsoll/${file}
      DESTINATION ${PLIMSOLL_PYTHON_FOLDER}/plimsoll COMPONENT python)
  endforeach()
  add_custom_target(python_package ALL DEPENDS ${copies} python_module)
  install(TARGETS python_module LIBRARY DESTINATION ${PLIMSOLL_PYTHON_FOLDER}/plimsoll
    COMPONENT python)
endfunction()
