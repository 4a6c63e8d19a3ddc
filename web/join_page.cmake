# Run with OUTPUT, ENGINE, BINARY, WEB and REPORT: inserts styles, scripts and the engine into web/page.html, with its
# WebAssembly compressed and encoded as text, a third of its size otherwise. The report's parts draw the timeline and
# the bars, so that page and report look and work alike.
cmake_minimum_required(VERSION 3.25)

function(join result)
  set(text "")
  foreach(file IN LISTS ARGN)
    file(READ "${file}" part)
    string(APPEND text "${part}")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

join(page "${WEB}/page.html")
join(style "${REPORT}/style.css" "${WEB}/page.css")
join(script "${REPORT}/decode.js" "${REPORT}/numbers.js" "${REPORT}/timeline_model.js" "${REPORT}/timeline_painter.js"
     "${REPORT}/timeline_view.js" "${REPORT}/sections.js" "${WEB}/state.js" "${WEB}/controls.js" "${WEB}/page.js")
join(engine "${ENGINE}")
execute_process(COMMAND gzip --best --no-name --stdout "${BINARY}" COMMAND base64 --wrap=0 OUTPUT_VARIABLE binary
                COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "{{style}}" "${style}" page "${page}")
string(REPLACE "{{script}}" "${script}" page "${page}")
string(REPLACE "{{engine}}" "${engine}" page "${page}")
string(REPLACE "{{binary}}" "${binary}" page "${page}")
file(WRITE "${OUTPUT}" "${page}")
