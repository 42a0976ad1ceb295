# One INTERFACE target carries language and warnings; warnings are errors everywhere in this tree.
# Programs that use the installed libraries choose their own flags.
add_library(plimsoll_options INTERFACE)
target_compile_features(plimsoll_options INTERFACE cxx_std_20)
target_compile_options(plimsoll_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffp-contract=off;-fno-semantic-interposition>>")
target_include_directories(plimsoll_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/plimsoll>)
if(PLIMSOLL_SANITIZER)
  # g++ 12 sees false uninitialized reads in Boost.Graph under instrumentation.
  set(sanitize -fsanitize=${PLIMSOLL_SANITIZER} -fno-omit-frame-pointer)
  if(PLIMSOLL_SANITIZER STREQUAL "address")
    # `undefined` does not check floating-point values that are converted to integers and do not fit.
    list(APPEND sanitize -fsanitize=undefined,float-cast-overflow
      -fno-sanitize-recover=undefined,float-cast-overflow)
  elseif(PLIMSOLL_SANITIZER STREQUAL "fuzzer")
    # clang has other warnings than the compiler that the code is written for.
    set(sanitize -fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow
      -fno-sanitize-recover=undefined,float-cast-overflow -fno-omit-frame-pointer -w)
  elseif(PLIMSOLL_SANITIZER STREQUAL "fuzzer-fast")
    # Only the checks of the standard library, such as those of bounds: it reads several times as many inputs.
    set(sanitize -fsanitize=fuzzer-no-link -fno-omit-frame-pointer -w -D_GLIBCXX_ASSERTIONS)
  endif()
  target_compile_options(plimsoll_options INTERFACE ${sanitize} -Wno-uninitialized -Wno-maybe-uninitialized)
  target_link_options(plimsoll_options INTERFACE ${sanitize})
  if(PLIMSOLL_SANITIZER STREQUAL "address")
    # Beside the address sanitizer, gcc 12's undefined-behaviour sanitizer writes reports into a file
    # (log_path, which scripts/sanitize sets) only where both are linked statically.
    target_link_options(plimsoll_options INTERFACE -static-libasan -static-libubsan)
  endif()
  target_compile_definitions(plimsoll_options INTERFACE PLIMSOLL_SANITIZED=1)
endif()

# Two things spare a clean build much of its work (docs/adr/0040-a-fast-loop.md): what most sources include
# of other projects is compiled once, and sources of one folder are compiled together. The
# preset debug does without, so that each source compiles on its own.
option(PLIMSOLL_TOGETHER "Precompile common headers, and compile several sources at a time" ON)
set(common_headers <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <map>
  <memory> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <unordered_map>
  <utility> <variant> <vector> <fmt/format.h>)
set(alone ${PROJECT_SOURCE_DIR}/cmake/alone.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${alone})
file(STRINGS ${alone} alone REGEX "^[a-z]")
list(TRANSFORM alone PREPEND ${PROJECT_SOURCE_DIR}/)
set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(PLIMSOLL_TOGETHER)
  # g++ 12 reports false overflows in std::string code that comes from a precompiled header.
  target_compile_options(plimsoll_options INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-restrict>>")
endif()

# Folders whose code runs once for a command: it reads files, prints, or finds words for a result. There the compiler's work
# takes more time than it saves. Searches, simulation, fits and training keep -O2.
set(cold "^(command_line|interop/(documents|exports|flags|hardware|imports|shell)|plan|published|python|reports|reports/sections|runtime/command|\
calibrate/(describe|schedule|sessions)|planner/(api|cli|commands|describe|doctor|explain|init|sweep|terminal))$")

# compile_together(NAME FOLDER): applies both to the library of a folder.
function(compile_together name folder)
  if(NOT PLIMSOLL_TOGETHER)
    return()
  endif()
  if(folder MATCHES "^(base|runtime)$")  # runtime has flags of its own, for OpenMP
    target_precompile_headers(${name} PRIVATE ${common_headers})
  else()
    target_precompile_headers(${name} REUSE_FROM plimsoll_base)
  endif()
  # Kernels and the engine's loops are timed, and should not change with their neighbours.
  if(NOT folder MATCHES "^(runtime|simulator/engine|tests/.*)$")
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endfunction()

# add_folders(): a static library plimsoll_FOLDER, with _ for /, of every .cpp directly in each
# folder of cmake/folders.txt, except the programs' *_main.cpp. It links the folders that it may
# include. plimsoll_TOP stands for all folders below TOP, where no code lies in TOP itself.
function(add_folders)
  set(table ${PROJECT_SOURCE_DIR}/cmake/folders.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(STRINGS ${table} rows REGEX "^[a-z]")
  string(REGEX MATCHALL "[a-z_/]+:" folders "${rows}")
  string(REPLACE ":" "" names "${folders}")
  set(PLIMSOLL_FOLDERS ${names} PARENT_SCOPE)
  foreach(row ${rows})
    string(REGEX REPLACE ":.*" "" folder "${row}")
    string(REGEX REPLACE "^[^:]*: *" "" below "${row}")
    string(REPLACE " " ";" below "${below}")
    string(REPLACE "/" "_" name ${folder})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(FILTER sources EXCLUDE REGEX "_main\\.cpp$")
    add_library(plimsoll_${name} STATIC ${sources})
    set_target_properties(plimsoll_${name} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(plimsoll_${name} PUBLIC plimsoll_options)
    if(folder MATCHES ${cold})
      target_compile_options(plimsoll_${name} PRIVATE "$<$<CONFIG:Release>:-Og;-Wno-maybe-uninitialized>")
    endif()
    compile_together(plimsoll_${name} ${folder})
    foreach(other ${below})
      string(REPLACE "/" "_" other ${other})
      target_link_libraries(plimsoll_${name} PUBLIC plimsoll_${other})
    endforeach()
    string(REGEX REPLACE "/.*" "" top ${folder})
    if(NOT "${top}:" IN_LIST folders)
      if(NOT TARGET plimsoll_${top})
        add_library(plimsoll_${top} INTERFACE)
      endif()
      target_link_libraries(plimsoll_${top} INTERFACE plimsoll_${name})
    endif()
  endforeach()
endfunction()

# add_backend(LAYER NAME DEPENDS ...): the sources of LAYER/NAME/ join the layer, with the vendor
# libraries that only they may include.
function(add_backend layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${layer}/${name}/*.cpp)
  target_sources(plimsoll_${layer} PRIVATE ${sources})
  if(arg_DEPENDS)
    target_link_libraries(plimsoll_${layer} PRIVATE ${arg_DEPENDS})
  endif()
endfunction()

function(add_program name)
  cmake_parse_arguments(arg "" "LAYER;SOURCE" "DEPENDS" ${ARGN})
  add_executable(${name} ${PROJECT_SOURCE_DIR}/${arg_SOURCE})
  target_link_libraries(${name} PRIVATE plimsoll_${arg_LAYER} ${arg_DEPENDS})
endfunction()
