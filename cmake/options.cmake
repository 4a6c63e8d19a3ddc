set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

option(FLOPCAST_BUILD_TESTS "Build tests and benchmarks" OFF)
option(FLOPCAST_WARNINGS_AS_ERRORS "Treat warnings in flopcast's own code as errors" OFF)
option(FLOPCAST_WITH_LIBRARY "Build the C++ library and, where pybind11 is found, the Python module" OFF)
option(FLOPCAST_WITH_REALRUN "Build flopcast-run and flopcast-measure; always on with tests or CUDA" OFF)
option(FLOPCAST_STATIC_RUNTIME "Link the C++ runtime statically: faster start, runs on older systems" OFF)
set(FLOPCAST_UNITY 32 CACHE STRING "Number of sources that are joined for compilation; 0 compiles each separately")
set(FLOPCAST_SANITIZERS "" CACHE STRING "Sanitizers for every target: address;undefined or thread")

# CUDA is off unless requested: nvcc takes minutes, and most build machines have no GPU.
set(FLOPCAST_WITH_CUDA OFF CACHE STRING "Use CUDA: ON (required), OFF")
if(FLOPCAST_WITH_CUDA STREQUAL AUTO)
  set(FLOPCAST_WITH_CUDA OFF CACHE STRING "Use CUDA: ON (required), OFF" FORCE)
endif()
foreach(component MPI CUDA NCCL YAML TOML OPENBLAS ZLIB SQLITE)
  set(FLOPCAST_WITH_${component} AUTO CACHE STRING "Use ${component}: AUTO (when found), ON (required), OFF")
  set_property(CACHE FLOPCAST_WITH_${component} PROPERTY STRINGS AUTO ON OFF)
  if(NOT FLOPCAST_WITH_${component} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR
            "FLOPCAST_WITH_${component} is \"${FLOPCAST_WITH_${component}}\"; valid: AUTO, ON, OFF")
  endif()
endforeach()

set(FLOPCAST_BUILDS_REALRUN OFF)
if(NOT EMSCRIPTEN AND (FLOPCAST_WITH_REALRUN OR FLOPCAST_BUILD_TESTS OR FLOPCAST_WITH_CUDA STREQUAL ON))
  set(FLOPCAST_BUILDS_REALRUN ON)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Joined sources exceed GCC's default garbage collection threshold; collecting would cost a tenth of the compile time.
  add_compile_options(--param=ggc-min-heapsize=1000000)
endif()

foreach(sanitizer IN LISTS FLOPCAST_SANITIZERS)
  add_compile_options(-fsanitize=${sanitizer} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
if("address" IN_LIST FLOPCAST_SANITIZERS AND "undefined" IN_LIST FLOPCAST_SANITIZERS)
  # These checks only repeat what AddressSanitizer and the hardware report about bad pointers, and cost a third of the compile
  # time.
  add_compile_options(-fno-sanitize=null,alignment,object-size,vptr)
endif()
if(FLOPCAST_STATIC_RUNTIME)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
if(NOT EMSCRIPTEN AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  # Replaces CMake's default: -O2 compiles a tenth faster than -O3, which makes a measurable difference in few sources only;
  # those request it (flopcast_hot_options).
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
if(EMSCRIPTEN)
  string(REPLACE "-O3" "-Oz" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")  # the page is downloaded before it runs
  # Emscripten disables exceptions by default; flopcast reports user errors through them.
  add_compile_options(-fwasm-exceptions)
  add_link_options(-fwasm-exceptions)
  # Lets a Node.js that does not come from Debian find the modules of Debian's Emscripten.
  if(EXISTS /usr/share/nodejs/acorn)
    set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs")
  endif()
endif()

if(NOT DEFINED ENV{CCACHE_DISABLE})
  find_program(FLOPCAST_CCACHE ccache)
endif()
if(FLOPCAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT EMSCRIPTEN)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${FLOPCAST_CCACHE}")
endif()
