# flopcast_library(model): the static library flopcast_model of the current folder, with includes from the project's
# root and our warnings. Sources are listed with target_sources in the folder and its subfolders.
function(flopcast_library name)
  add_library(flopcast_${name} STATIC)
  add_library(flopcast::${name} ALIAS flopcast_${name})
  target_include_directories(flopcast_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(flopcast_${name} PRIVATE flopcast_warnings)
endfunction()

# flopcast_cold_sources(model a.cpp b.cpp): sources of a library that read or print once per command. Nobody notices them
# running at -O1, and they compile in two thirds of the time.
function(flopcast_cold_sources name)
  target_sources(flopcast_${name} PRIVATE ${ARGN})
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT EMSCRIPTEN)
    set_property(SOURCE ${ARGN} TARGET_DIRECTORY flopcast_${name} APPEND PROPERTY COMPILE_OPTIONS -O1)
  endif()
endfunction()

# flopcast_precompiled(model): what most sources of the target include is read once. Fresh builds only: compiler caches cannot
# see through it.
function(flopcast_precompiled target)
  if(FLOPCAST_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE <nlohmann/json.hpp> <fmt/format.h> <algorithm> <functional> <map> <optional>
                              <set> <sstream> <string> <vector>)
  endif()
endfunction()
