# Writes the scripts of the report's page into a source file, one behind the other, so that a page needs no other file:
# cmake -D FOLDER=reports/page -D OUTPUT=x.cpp -P page_script.cmake
file(GLOB files ${FOLDER}/*.js)
list(SORT files)
set(text "// Written by cmake/page_script.cmake.\n#include \"reports/page.h\"\n\nnamespace plimsoll {\n\n")
string(APPEND text "std::string_view page_script() {\n  return R\"js(\n")
foreach(file ${files})
  file(READ ${file} content)
  string(APPEND text "${content}")
endforeach()
string(APPEND text ")js\";\n}\n\n}  // namespace plimsoll\n")
file(WRITE ${OUTPUT} "${text}")
