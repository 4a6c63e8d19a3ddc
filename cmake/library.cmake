# flopcast_library(model): the static library flopcast_model of the current folder, with includes from the project's
# root and our warnings. Sources are listed with target_sources in the folder and its subfolders.
function(flopcast_library name)
  add_library(flopcast_${name} STATIC)
  add_library(flopcast::${name} ALIAS flopcast_${name})
  target_include_directories(flopcast_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(flopcast_${name} PRIVATE flopcast_warnings)
  flopcast_precompiled(flopcast_${name})
endfunction()

# Code that runs once per command, to read, ask or print: nobody notices it running at -O1, and it compiles in two thirds
# of the time.
set(flopcast_cold_options "")
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT EMSCRIPTEN)
  set(flopcast_cold_options -O1)
endif()

# flopcast_cold_sources(model a.cpp b.cpp): such sources of a library.
function(flopcast_cold_sources name)
  target_sources(flopcast_${name} PRIVATE ${ARGN})
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY flopcast_${name} APPEND PROPERTY COMPILE_OPTIONS ${flopcast_cold_options})
endfunction()

# flopcast_precompiled(target): what most of its sources include is read once, where FLOPCAST_PRECOMPILED_HEADERS says so.
# Not where warnings are errors: GCC 12 warns of the standard library's own code once it is precompiled.
function(flopcast_precompiled target)
  if(FLOPCAST_PRECOMPILED_HEADERS AND NOT FLOPCAST_WARNINGS_AS_ERRORS)
    target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${target} PRIVATE <nlohmann/json.hpp> <fmt/format.h> <algorithm> <functional> <map> <optional>
                              <set> <sstream> <string> <vector>)
  endif()
endfunction()
