# Writes the files of a folder into a source file, so that programs have them wherever they run:
# cmake -D FOLDER=models/presets/clusters -D NAME=cluster_presets -D OUTPUT=x.cpp -P presets.cmake
file(GLOB files ${FOLDER}/*)
list(FILTER files EXCLUDE REGEX "\\.md$")
list(SORT files)
set(text "// Written by cmake/presets.cmake.\n#include \"models/presets/presets.h\"\n\nnamespace plimsoll {\n\n")
# sv gives the length: from a pointer the compiler would count a megabyte of characters one by one.
string(APPEND text "using namespace std::string_view_literals;\n\n")
string(APPEND text "const std::vector<Preset>& ${NAME}() {\n  static const std::vector<Preset> presets = {\n")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} content)
  string(APPEND text "      {\"${name}\"sv, R\"text(${content})text\"sv},\n")
endforeach()
string(APPEND text "  };\n  return presets;\n}\n\n}  // namespace plimsoll\n")
file(WRITE ${OUTPUT} "${text}")
