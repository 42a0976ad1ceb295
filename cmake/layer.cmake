# One INTERFACE target carries language and warnings; warnings are errors everywhere.
add_library(plimsoll_options INTERFACE)
target_compile_features(plimsoll_options INTERFACE cxx_std_20)
target_compile_options(plimsoll_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-ffp-contract=off>")
target_include_directories(plimsoll_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/plimsoll>)
if(PLIMSOLL_SANITIZER)
  # g++ 12 sees false uninitialized reads in Boost.Graph under instrumentation.
  set(sanitize -fsanitize=${PLIMSOLL_SANITIZER} -fno-omit-frame-pointer)
  if(PLIMSOLL_SANITIZER STREQUAL "address")
    list(APPEND sanitize -fsanitize=undefined -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(plimsoll_options INTERFACE ${sanitize} -Wno-uninitialized -Wno-maybe-uninitialized)
  target_link_options(plimsoll_options INTERFACE ${sanitize})
  target_compile_definitions(plimsoll_options INTERFACE PLIMSOLL_SANITIZED=1)
endif()

# add_layer(NAME DEPENDS ...): static library plimsoll_NAME of every .cpp directly in NAME/, except
# the programs' *_main.cpp. Other layers are named by folder.
function(add_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_main\\.cpp$")
  add_library(plimsoll_${name} STATIC ${sources})
  add_library(plimsoll::${name} ALIAS plimsoll_${name})
  set_target_properties(plimsoll_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_link_libraries(plimsoll_${name} PUBLIC plimsoll_options)
  foreach(dependency ${arg_DEPENDS})
    if(TARGET plimsoll_${dependency})
      set(dependency plimsoll_${dependency})
    endif()
    target_link_libraries(plimsoll_${name} PUBLIC ${dependency})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY PLIMSOLL_LAYERS ${name})
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
