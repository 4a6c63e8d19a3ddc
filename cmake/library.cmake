# flopcast_library(model): the static library flopcast_model of the current folder, with includes from the project's
# root and our warnings. Its sources are listed with target_sources.
#
# Sources are compiled joined, FLOPCAST_UNITY of them at a time: half the time of a small source goes into the headers that
# its neighbours have read already. So file-local names are unique in a library.
function(flopcast_library name)
  add_library(flopcast_${name} STATIC)
  add_library(flopcast::${name} ALIAS flopcast_${name})
  target_include_directories(flopcast_${name} PUBLIC "${FLOPCAST_ROOT}")
  target_link_libraries(flopcast_${name} PRIVATE flopcast_warnings)
  flopcast_joined(flopcast_${name})
endfunction()

# flopcast_joined(target)
function(flopcast_joined target)
  if(FLOPCAST_UNITY GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${FLOPCAST_UNITY})
  endif()
endfunction()

# flopcast_shared_out(realrun): joins fewer sources of a library at a time where FLOPCAST_UNITY would leave cores without work:
# two compilations a core, so that all cores end at about the same time. Follows the library's target_sources.
function(flopcast_shared_out name)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  get_target_property(sources flopcast_${name} SOURCES)
  list(LENGTH sources count)
  math(EXPR each "(${count} + 2 * ${cores} - 1) / (2 * ${cores})")
  if(each LESS FLOPCAST_UNITY)
    set_target_properties(flopcast_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE ${each})
  endif()
endfunction()

# Code that runs once per command, to read, ask or print: nobody notices it running at -Og, and it compiles in half
# the time. To a browser it is sent, so it shall be small.
set(flopcast_cold_options "")
if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo)$" AND NOT FLOPCAST_SANITIZERS)
  set(flopcast_cold_options $<IF:$<BOOL:${EMSCRIPTEN}>,-Oz,-Og>)
endif()

# flopcast_cold(target): such a target.
function(flopcast_cold target)
  target_compile_options(${target} PRIVATE ${flopcast_cold_options})
endfunction()

# flopcast_sources_apart(model cold "-Og" a.cpp b.cpp): sources of a library that are compiled with options of their own,
# joined among themselves. Follows the library's target_link_libraries.
function(flopcast_sources_apart name what options)
  if(NOT options)
    target_sources(flopcast_${name} PRIVATE ${ARGN})
    return()
  endif()
  set(target flopcast_${name}_${what})
  add_library(${target} OBJECT ${ARGN})
  get_target_property(libraries flopcast_${name} LINK_LIBRARIES)
  target_link_libraries(${target} PRIVATE ${libraries})
  target_include_directories(${target} PRIVATE "${FLOPCAST_ROOT}")
  target_compile_options(${target} PRIVATE ${options})
  flopcast_joined(${target})
  target_sources(flopcast_${name} PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# flopcast_cold_sources(model a.cpp b.cpp): cold sources of a library whose others are not.
function(flopcast_cold_sources name)
  flopcast_sources_apart(${name} cold "${flopcast_cold_options}" ${ARGN})
endfunction()

# What a user waits for: searches, the engine, the planner, months drawn, kernels of runs on CPUs.
set(flopcast_hot_options "")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT EMSCRIPTEN AND NOT FLOPCAST_SANITIZERS)
  set(flopcast_hot_options -O3)
endif()

# flopcast_hot_sources(sim a.cpp b.cpp): such sources of a library whose others are not.
function(flopcast_hot_sources name)
  flopcast_sources_apart(${name} hot "${flopcast_hot_options}" ${ARGN})
endfunction()
