# flopcast_library(model): the static library flopcast_model of the current folder, with includes from the project's
# root and our warnings. Its sources are listed with target_sources.
#
# Sources are compiled joined, FLOPCAST_UNITY of them at a time: half the time of a small source goes into the headers that
# its neighbours have read already. So file-local names are unique in a library.
function(flopcast_library name)
  add_library(flopcast_${name} STATIC)
  add_library(flopcast::${name} ALIAS flopcast_${name})
  target_include_directories(flopcast_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(flopcast_${name} PRIVATE flopcast_warnings)
  flopcast_joined(flopcast_${name})
endfunction()

# flopcast_joined(target)
function(flopcast_joined target)
  if(FLOPCAST_UNITY GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${FLOPCAST_UNITY})
  endif()
  flopcast_precompiled(${target})
endfunction()

# Code that runs once per command, to read, ask or print: nobody notices it running at -O1, and it compiles in two thirds
# of the time.
set(flopcast_cold_options "")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT EMSCRIPTEN)
  set(flopcast_cold_options -O1)
endif()

# flopcast_cold(target): such a target.
function(flopcast_cold target)
  target_compile_options(${target} PRIVATE ${flopcast_cold_options})
endfunction()

# flopcast_cold_sources(model a.cpp b.cpp)
function(flopcast_cold_sources name)
  target_sources(flopcast_${name} PRIVATE ${ARGN})
endfunction()

# flopcast_precompiled(target): what most sources include is read once, where FLOPCAST_PRECOMPILED_HEADERS says so.
# Not where warnings are errors: GCC 12 warns of the standard library's own code once it is precompiled.
function(flopcast_precompiled target)
  if(FLOPCAST_PRECOMPILED_HEADERS AND NOT FLOPCAST_WARNINGS_AS_ERRORS)
    target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${target} PRIVATE <nlohmann/json.hpp> <fmt/format.h> <algorithm> <functional> <map> <optional>
                              <set> <sstream> <string> <vector>)
  endif()
endfunction()
