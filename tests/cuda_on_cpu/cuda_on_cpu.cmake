# The device side of the emulation comes with the kernels.
if(NOT EXISTS ${CMAKE_CURRENT_LIST_DIR}/include/device_emulation.h)
  return()
endif()

# The sources of runtime/cuda compiled as C++ against headers that stand in for CUDA's and do its
# work on the CPU. What opens libraries of the vendor's has no counterpart.
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/cuda/*.cu)
file(GLOB cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/cuda/*.cpp)
file(GLOB emulation CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda_on_cpu/*.cpp)
list(FILTER cuda_host EXCLUDE REGEX "/(open_)?library\\.cpp$")
# NCCL's communicators against its own header, also where the backend itself is not built.
find_package(CUDAToolkit QUIET)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NCCL_INCLUDE_DIR)
  file(GLOB nccl_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/comm/nccl/*.cpp)
  list(FILTER nccl_host EXCLUDE REGEX "/open_library\\.cpp$")
  list(APPEND cuda_host ${nccl_host})
else()
  list(FILTER emulation EXCLUDE REGEX "/nccl\\.cpp$")
endif()
# Each load and store of a kernel calls a function of races.cpp; libtsan stays away. Precompiled
# headers are for other flags.
set(observed "")
if(NOT PLIMSOLL_SANITIZER)
  set(observed -fsanitize=thread --param=tsan-instrument-func-entry-exit=0)
endif()
set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX
  COMPILE_OPTIONS "-x;c++;${observed}" SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties(cuda/small_kernels.cpp PROPERTIES COMPILE_OPTIONS "${observed}"
  SKIP_PRECOMPILE_HEADERS ON)
add_library(cuda_on_cpu STATIC ${cuda_kernels} ${cuda_host} ${emulation})
target_include_directories(cuda_on_cpu BEFORE PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/cuda_on_cpu/include)
if(NCCL_INCLUDE_DIR)
  # Behind the headers of the emulation: beside NCCL's lie the toolkit's.
  target_include_directories(cuda_on_cpu SYSTEM PUBLIC ${NCCL_INCLUDE_DIR})
endif()
target_link_libraries(cuda_on_cpu PUBLIC plimsoll_runtime)
compile_together(cuda_on_cpu tests/cuda_on_cpu)
target_compile_options(cuda_on_cpu PUBLIC -Wno-unknown-pragmas)  # unroll

# planner-run on the emulation: tests scripts/gpu-check, says nothing of GPUs.
add_executable(cuda_on_cpu_run EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/runtime/command/run_main.cpp)
target_link_libraries(cuda_on_cpu_run PRIVATE plimsoll_runtime_command cuda_on_cpu)
target_compile_definitions(cuda_on_cpu_run PRIVATE PLIMSOLL_CUDA=1)
set_target_properties(cuda_on_cpu_run PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
