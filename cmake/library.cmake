# flopcast_library(model): creates the static library flopcast_model for the current folder, with includes from the project
# root and flopcast's warnings. Its sources are listed with target_sources.
#
# Sources are joined for compilation, FLOPCAST_UNITY at a time, because half the compile time of a small source is spent in
# headers that the others include as well. File-local names must therefore be unique within a library.
function(flopcast_library name)
  add_library(flopcast_${name} STATIC)
  add_library(flopcast::${name} ALIAS flopcast_${name})
  target_include_directories(flopcast_${name} PUBLIC "${FLOPCAST_ROOT}")
  target_link_libraries(flopcast_${name} PRIVATE flopcast_warnings)
  flopcast_joined(flopcast_${name})
endfunction()

# flopcast_joined(target): compiles the sources of the target joined.
function(flopcast_joined target)
  if(FLOPCAST_UNITY GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${FLOPCAST_UNITY})
  endif()
endfunction()

# flopcast_shared_out(realrun): joins fewer sources of a library at a time where FLOPCAST_UNITY would leave cores idle. Two
# compilations per core let all cores finish at about the same time. Must come after the library's target_sources.
function(flopcast_shared_out name)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  get_target_property(sources flopcast_${name} SOURCES)
  list(LENGTH sources count)
  math(EXPR each "(${count} + 2 * ${cores} - 1) / (2 * ${cores})")
  if(each LESS FLOPCAST_UNITY)
    set_target_properties(flopcast_${name} PROPERTIES UNITY_BUILD_BATCH_SIZE ${each})
  endif()
endfunction()

# Options for code that runs once per command, such as readers and tables: -Og makes no noticeable difference at run time and
# halves the compile time. For the browser, -Oz keeps the download small.
set(flopcast_cold_options "")
if(CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo)$" AND NOT FLOPCAST_SANITIZERS)
  set(flopcast_cold_options $<IF:$<BOOL:${EMSCRIPTEN}>,-Oz,-Og>)
endif()

# flopcast_cold(target): compiles the target with the options for cold code.
function(flopcast_cold target)
  target_compile_options(${target} PRIVATE ${flopcast_cold_options})
endfunction()

# flopcast_sources_apart(model cold "-Og" a.cpp b.cpp): adds sources that need different options from the rest of the library
# and joins them separately. Must come after the library's target_link_libraries.
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

# flopcast_cold_sources(model a.cpp b.cpp): adds cold sources to a library.
function(flopcast_cold_sources name)
  flopcast_sources_apart(${name} cold "${flopcast_cold_options}" ${ARGN})
endfunction()

# Options for code that determines the run time: searches, the engine, the planner, simulated months, CPU kernels of real runs.
set(flopcast_hot_options "")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT EMSCRIPTEN AND NOT FLOPCAST_SANITIZERS)
  set(flopcast_hot_options -O3)
endif()

# flopcast_hot_sources(sim a.cpp b.cpp): adds hot sources to a library.
function(flopcast_hot_sources name)
  flopcast_sources_apart(${name} hot "${flopcast_hot_options}" ${ARGN})
endfunction()
