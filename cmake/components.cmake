# Lists the compiler and libraries of the build with versions and licences, for `flopcast --version --verbose`
# (components.cpp) and for the bill of materials in the packages (flopcast.cdx.json, CycloneDX 1.5). Both contain only what
# the configuration found, so that the same machine produces the same bytes.
if(EMSCRIPTEN)
  return()
endif()
find_program(FLOPCAST_DPKG_QUERY dpkg-query)

# Sets `result` to the version of a Debian package; empty on other systems.
function(flopcast_package_version package result)
  set(version "")
  if(FLOPCAST_DPKG_QUERY)
    execute_process(COMMAND "${FLOPCAST_DPKG_QUERY}" --show "--showformat=\${Version}" "${package}"
                    OUTPUT_VARIABLE version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

set(flopcast_component_lines "")
set(flopcast_component_json "")

# flopcast_component(fmt MIT libfmt-dev 9.1.0): without a version, uses that of the package without Debian's suffix.
macro(flopcast_component name licence package)
  set(component_version "${ARGN}")
  flopcast_package_version(${package} component_package_version)
  if(component_version STREQUAL "")
    string(REGEX REPLACE "[-+~].*" "" component_version "${component_package_version}")
  endif()
  if(component_version STREQUAL "")
    set(component_version unknown)
  endif()
  set(component_line "${name} ${component_version}, ${licence}")
  set(component_purl "")
  if(NOT component_package_version STREQUAL "")
    string(APPEND component_line " (${package} ${component_package_version})")
    string(REPLACE "+" "%2B" component_escaped "${component_package_version}")
    set(component_purl ", \"purl\": \"pkg:deb/debian/${package}@${component_escaped}\"")
  endif()
  string(APPEND flopcast_component_lines "  ${component_line}\n")
  string(APPEND flopcast_component_json
         ",\n    {\"type\": \"library\", \"name\": \"${name}\", \"version\": \"${component_version}\", "
         "\"licenses\": [{\"license\": {\"id\": \"${licence}\"}}]${component_purl}}")
endmacro()

flopcast_component(fmt MIT libfmt-dev ${fmt_VERSION})
flopcast_component(nlohmann_json MIT nlohmann-json3-dev ${nlohmann_json_VERSION})
flopcast_component(CLI11 BSD-3-Clause libcli11-dev ${CLI11_VERSION})
flopcast_component(Boost BSL-1.0 libboost-dev ${Boost_VERSION})
flopcast_component(Eigen MPL-2.0 libeigen3-dev ${Eigen3_VERSION})
if(NOT FLOPCAST_YAML_FOUND MATCHES "^no")
  flopcast_component(yaml-cpp MIT libyaml-cpp-dev)
endif()
if(NOT FLOPCAST_TOML_FOUND MATCHES "^no")
  flopcast_component(tomlplusplus MIT libtomlplusplus-dev)
endif()
if(NOT FLOPCAST_ZLIB_FOUND MATCHES "^no")
  flopcast_component(zlib Zlib zlib1g-dev)
endif()
if(NOT FLOPCAST_SQLITE_FOUND MATCHES "^no")
  flopcast_component(SQLite blessing libsqlite3-dev)
endif()
if(FLOPCAST_STATIC_RUNTIME)
  flopcast_component(libstdc++ GPL-3.0-with-GCC-exception g++ ${CMAKE_CXX_COMPILER_VERSION})
endif()

string(SUBSTRING "${flopcast_component_json}" 2 -1 flopcast_component_json)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/flopcast.cdx.json" @ONLY CONTENT [[
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {"type": "application", "name": "flopcast", "version": "@PROJECT_VERSION@"}
  },
  "components": [
@flopcast_component_json@
  ]
}
]])
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/components.cpp" @ONLY CONTENT [[
#include "cli/commands.hpp"

namespace flopcast {

std::string_view build_components() {
  return R"(@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@, @CMAKE_BUILD_TYPE@, for @CMAKE_SYSTEM_NAME@ on @CMAKE_SYSTEM_PROCESSOR@
built with
@flopcast_component_lines@)";
}

}  // namespace flopcast
]])
