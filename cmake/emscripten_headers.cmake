# The browser build uses the host's header-only libraries. Emscripten must not see the rest of /usr/include, so a folder of
# links contains only these libraries.
set(header_links "${PROJECT_BINARY_DIR}/host-headers")
file(MAKE_DIRECTORY "${header_links}")
foreach(header fmt/core.h nlohmann/json.hpp boost/version.hpp)
  get_filename_component(folder ${header} DIRECTORY)
  find_path(FLOPCAST_HOST_${folder} ${header} NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include REQUIRED)
  file(CREATE_LINK "${FLOPCAST_HOST_${folder}}/${folder}" "${header_links}/${folder}" SYMBOLIC)
endforeach()

foreach(library fmt::fmt nlohmann_json::nlohmann_json Boost::headers)
  add_library(${library} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${library} INTERFACE "${header_links}")
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)

foreach(component MPI CUDA NCCL YAML TOML OPENBLAS ZLIB SQLITE)
  set(FLOPCAST_${component}_FOUND "no, not in a browser")
endforeach()
