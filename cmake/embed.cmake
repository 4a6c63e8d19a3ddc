# flopcast_embed(target FUNCTION name HEADER header.hpp [FOLDER folder] FILES a.json models/*.json …)
# Compiles the text of the files into the target: writes a source that defines the function `name`, declared in HEADER, which
# returns an EmbeddedFile for each file with its path relative to FOLDER (default: the current folder). The next build embeds
# changed files again. Unlike sources, data files may be given by a pattern, so that adding a device means adding one file.
function(flopcast_embed target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FUNCTION;HEADER;FOLDER" "FILES")
  foreach(required FUNCTION HEADER FILES)
    if(NOT arg_${required})
      message(FATAL_ERROR "flopcast_embed: ${required} is missing")
    endif()
  endforeach()

  set(source "${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION}.cpp")
  set(folder "${CMAKE_CURRENT_SOURCE_DIR}/${arg_FOLDER}")
  set(found "")
  foreach(pattern IN LISTS arg_FILES)
    file(GLOB of_pattern CONFIGURE_DEPENDS RELATIVE "${folder}" "${folder}/${pattern}")
    if(NOT of_pattern)
      message(FATAL_ERROR "flopcast_embed: no file matches ${folder}/${pattern}")
    endif()
    list(APPEND found ${of_pattern})
  endforeach()
  list(JOIN found "|" files)
  list(TRANSFORM found PREPEND "${folder}/")
  add_custom_command(
    OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${source}" "-DFUNCTION=${arg_FUNCTION}" "-DHEADER=${arg_HEADER}"
            "-DFILES=${files}" -P "${FLOPCAST_ROOT}/cmake/embed_files.cmake"
    DEPENDS ${found} "${FLOPCAST_ROOT}/cmake/embed_files.cmake"
    WORKING_DIRECTORY "${folder}"
    COMMENT "Embedding files as ${arg_FUNCTION}()"
    VERBATIM)
  # The rule belongs to this folder and the target may belong to another; a custom target connects them.
  add_custom_target(${arg_FUNCTION}_source DEPENDS "${source}")
  add_dependencies(${target} ${arg_FUNCTION}_source)
  target_sources(${target} PRIVATE "${source}")
endfunction()
