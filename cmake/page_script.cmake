# Writes the style sheet and the scripts of the report's page into a source file, so that a page needs no other file:
# cmake -D FOLDER=reports/page -D OUTPUT=x.cpp -P page_script.cmake
set(text "// Written by cmake/page_script.cmake.\n#include \"reports/page.h\"\n\nnamespace plimsoll {\n\n")

# Adds a function that returns the files of a kind, one behind the other.
macro(add_texts kind function)
  file(GLOB files ${FOLDER}/*.${kind})
  list(SORT files)
  string(APPEND text "std::string_view ${function}() {\n  return R\"${kind}(\n")
  foreach(file ${files})
    file(READ ${file} content)
    string(APPEND text "${content}")
  endforeach()
  string(APPEND text ")${kind}\";\n}\n\n")
endmacro()

add_texts(css report_style)
add_texts(js page_script)
file(WRITE ${OUTPUT} "${text}}  // namespace plimsoll\n")
