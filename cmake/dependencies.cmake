if(EMSCRIPTEN)
  include(emscripten_headers)
  return()
endif()

find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(Threads REQUIRED)

if(FLOPCAST_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  find_package(benchmark REQUIRED)
endif()

set(FLOPCAST_MPI_FOUND no)
if(NOT FLOPCAST_WITH_MPI STREQUAL OFF)
  # Only the C bindings: the C++ bindings are deprecated and add another library.
  enable_language(C)
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    set(FLOPCAST_MPI_FOUND "yes, ${MPI_C_LIBRARIES}")
  elseif(FLOPCAST_WITH_MPI STREQUAL ON)
    message(FATAL_ERROR "FLOPCAST_WITH_MPI is ON, but no MPI was found (Debian: libopenmpi-dev)")
  endif()
endif()

# yaml-cpp reads other programs' YAML files on the command line; without it they are refused.
set(FLOPCAST_YAML_FOUND no)
if(NOT FLOPCAST_WITH_YAML STREQUAL OFF)
  find_path(FLOPCAST_YAML_INCLUDE_DIR yaml-cpp/yaml.h)
  # The archive first, so that the program runs where the library is not installed.
  find_library(FLOPCAST_YAML_LIBRARY NAMES libyaml-cpp.a yaml-cpp)
  find_library(FLOPCAST_YAML_SHARED_LIBRARY NAMES yaml-cpp)
  if(FLOPCAST_YAML_INCLUDE_DIR AND FLOPCAST_YAML_LIBRARY)
    set(FLOPCAST_YAML_FOUND "yes, ${FLOPCAST_YAML_LIBRARY}")
  elseif(FLOPCAST_WITH_YAML STREQUAL ON)
    message(FATAL_ERROR "FLOPCAST_WITH_YAML is ON, but yaml-cpp was not found (Debian: libyaml-cpp-dev)")
  endif()
endif()

# toml++ reads torchtitan's TOML recipes; without it they are refused.
set(FLOPCAST_TOML_FOUND no)
if(NOT FLOPCAST_WITH_TOML STREQUAL OFF)
  find_path(FLOPCAST_TOML_INCLUDE_DIR toml++/toml.h)
  if(FLOPCAST_TOML_INCLUDE_DIR)
    set(FLOPCAST_TOML_FOUND "yes, ${FLOPCAST_TOML_INCLUDE_DIR}/toml++")
  elseif(FLOPCAST_WITH_TOML STREQUAL ON)
    message(FATAL_ERROR "FLOPCAST_WITH_TOML is ON, but toml++ was not found (Debian: libtomlplusplus-dev)")
  endif()
endif()

# zlib reads compressed traces; without it they must be decompressed first.
set(FLOPCAST_ZLIB_FOUND no)
if(NOT FLOPCAST_WITH_ZLIB STREQUAL OFF)
  find_path(FLOPCAST_ZLIB_INCLUDE_DIR zlib.h)
  # The archive first, so that the program runs where the library is not installed.
  find_library(FLOPCAST_ZLIB_LIBRARY NAMES libz.a z)
  if(FLOPCAST_ZLIB_INCLUDE_DIR AND FLOPCAST_ZLIB_LIBRARY)
    set(FLOPCAST_ZLIB_FOUND "yes, ${FLOPCAST_ZLIB_LIBRARY}")
  elseif(FLOPCAST_WITH_ZLIB STREQUAL ON)
    message(FATAL_ERROR "FLOPCAST_WITH_ZLIB is ON, but zlib was not found (Debian: zlib1g-dev)")
  endif()
endif()

# SQLite reads exports of Nsight Systems, which are databases; without it they are refused.
set(FLOPCAST_SQLITE_FOUND no)
if(NOT FLOPCAST_WITH_SQLITE STREQUAL OFF)
  find_path(FLOPCAST_SQLITE_INCLUDE_DIR sqlite3.h)
  find_library(FLOPCAST_SQLITE_LIBRARY NAMES libsqlite3.a sqlite3)  # archive first, as above
  if(FLOPCAST_SQLITE_INCLUDE_DIR AND FLOPCAST_SQLITE_LIBRARY)
    set(FLOPCAST_SQLITE_FOUND "yes, ${FLOPCAST_SQLITE_LIBRARY}")
  elseif(FLOPCAST_WITH_SQLITE STREQUAL ON)
    message(FATAL_ERROR "FLOPCAST_WITH_SQLITE is ON, but SQLite was not found (Debian: libsqlite3-dev)")
  endif()
endif()
