# Packages of Debian, one for each component of `cmake --install`: scripts/packages runs
# `cpack -G DEB`, and `cpack -G TGZ` for the relocatable planner (cmake/package_options.cmake). dpkg-shlibdeps finds the libraries that programs need. Packages carry the licence
# and both changelogs where Debian's policy wants them (12.5 and 12.7).
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(GZIP gzip)
if(NOT DPKG_SHLIBDEPS OR NOT GZIP)
  return()
endif()
set(release 1)  # of the packages of one version
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME plimsoll)
set(CPACK_PACKAGE_VENDOR Plimsoll)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_options.cmake)
set(CPACK_THREADS 0)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${release})
# An address that nobody answers: RFC 2606 keeps .invalid free.
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Plimsoll developers <plimsoll@plimsoll.invalid>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# debian_package(COMPONENT NAME SECTION DEPENDS DESCRIPTION): the package NAME of a component.
# DEPENDS comes beside the libraries of its programs.
function(debian_package component name section depends description)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${description}" PARENT_SCOPE)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${name})
  configure_file(packages/changelog.in ${PROJECT_BINARY_DIR}/packages/changelog.Debian @ONLY)
  install(FILES packages/copyright ${PROJECT_BINARY_DIR}/packages/changelog.Debian
    DESTINATION ${folder} COMPONENT ${component})
  install(FILES CHANGELOG.md DESTINATION ${folder} RENAME changelog COMPONENT ${component})
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${folder}\")
    execute_process(COMMAND \"${GZIP}\" -9nf \"\${folder}/changelog\" \"\${folder}/changelog.Debian\"
      COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
endfunction()

set(same_version "plimsoll (= ${PROJECT_VERSION}-${release})")
debian_package(planner plimsoll science ""
  "planner of training jobs on clusters of GPUs\nSearches how to split the training of a transformer over a cluster, and\npredicts step time and memory. It needs neither MPI nor CUDA.")
set(mpi_start "")
if(TARGET planner-run-mpi)
  set(mpi_start ", openmpi-bin")  # MPI starts a program of its own, of which no library tells
endif()
debian_package(runtime plimsoll-runtime science
  "${same_version}${mpi_start}"
  "trains by plans of Plimsoll and measures machines\nThe bundled runtime, which trains by a plan with threads or with MPI, and\nthe programs that measure a machine.")
debian_package(development plimsoll-dev libdevel "libboost-dev, nlohmann-json3-dev, libfmt-dev, libssl-dev, libeigen3-dev, libexpat1-dev, libyaml-cpp-dev, zlib1g-dev"
  "headers, static libraries and CMake package of Plimsoll\nFor C++ programs that predict and search by themselves.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_COMPONENTS_ALL planner runtime development)
if(TARGET python_module)
  math(EXPR next_python "${Python3_VERSION_MINOR} + 1")
  set(next_python ${Python3_VERSION_MAJOR}.${next_python})
  debian_package(python python3-plimsoll python "python3 (>= ${Python3_VERSION_MAJOR}.${Python3_VERSION_MINOR}), python3 (<< ${next_python})"
    "Plimsoll for Python\nThe planner's commands as functions, with dictionaries as results.")
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
include(CPack)
