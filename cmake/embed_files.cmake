# Run by flopcast_embed with OUTPUT, FUNCTION, HEADER and FILES (separated by "|"), in the folder of the files.
cmake_minimum_required(VERSION 3.25)

# Compilers need not accept string literals of more than 65,536 characters, so long texts become several adjacent literals.
set(longest_literal 16000)

# Sets `result` to the text as adjacent raw string literals, split at line ends.
function(to_literals text result)
  set(literals "")
  string(LENGTH "${text}" remaining)
  while(remaining GREATER longest_literal)
    string(SUBSTRING "${text}" 0 ${longest_literal} piece)
    string(FIND "${piece}" "\n" last_line_end REVERSE)
    if(last_line_end LESS 0)
      message(FATAL_ERROR "a line is longer than ${longest_literal} characters")
    endif()
    math(EXPR length "${last_line_end} + 1")
    string(SUBSTRING "${text}" 0 ${length} piece)
    string(SUBSTRING "${text}" ${length} -1 text)
    string(APPEND literals "R\"flopcast(${piece})flopcast\"\n     ")
    string(LENGTH "${text}" remaining)
  endwhile()
  set(${result} "${literals}R\"flopcast(${text})flopcast\"" PARENT_SCOPE)
endfunction()

set(entries "")
string(REPLACE "|" ";" files "${FILES}")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(FIND "${text}" ")flopcast\"" terminator)
  if(NOT terminator EQUAL -1)
    message(FATAL_ERROR "${file} contains )flopcast\", the delimiter of the string literals that embed it")
  endif()
  to_literals("${text}" literals)
  string(APPEND entries "    {\"${file}\",\n     ${literals}},\n")
endforeach()

file(WRITE "${OUTPUT}" "#include \"${HEADER}\"

namespace flopcast {

const std::vector<EmbeddedFile>& ${FUNCTION}() {
  static const std::vector<EmbeddedFile> files = {
${entries}  };
  return files;
}

}  // namespace flopcast
")
