# CUDA is optional: without a toolkit everything else builds. Kernels are compiled for compute
# capability 8.0, and newer GPUs translate the PTX of it as they load a kernel. The preset gpu
# compiles for 8.0, 9.0 and 10.0, which takes three times as long.
option(PLIMSOLL_CUDA "Build the CUDA backend where a toolkit is found" ON)
set(PLIMSOLL_CUDA_FOUND FALSE)
# NVIDIA's driver makes one of these files for its GPUs, the second under WSL.
if(EXISTS /dev/nvidiactl OR EXISTS /dev/dxg)
  set(gpu TRUE)
else()
  set(gpu ${PLIMSOLL_ALL})
endif()
if(PLIMSOLL_CUDA AND gpu AND NOT PLIMSOLL_SANITIZER)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
    # The CUDA runtime is linked statically and cuBLASLt and NCCL are opened when first used
    # (runtime/cuda/library.h): programs start where neither toolkit nor driver is installed.
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    # CMake 3.25 does not know nvcc's flags for C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(PLIMSOLL_CUDA_FOUND TRUE)
  endif()
endif()

# add_cuda_library(NAME FOLDER PATH DEPENDS ...): static library of every .cpp and .cu in PATH.
function(add_cuda_library name)
  cmake_parse_arguments(arg "" "FOLDER" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/${arg_FOLDER}/*.cpp ${PROJECT_SOURCE_DIR}/${arg_FOLDER}/*.cu)
  add_library(${name} STATIC ${sources})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} CUDA::cudart_static)
endfunction()
