// Tells files of trainers that are not read by their marks.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "interop/imports/readers.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

struct ForeignFile {
  std::string name, instead;
  /// Texts of lists of marks: all of one list have to be there.
  std::vector<std::vector<std::string>> marks;
  std::vector<std::string> unless;  ///< marks of files that are read
};

std::vector<ForeignFile> foreign_files() {
  const std::string file = "foreign-files";
  const auto text = find_preset(reader_presets(), file);
  INVARIANT(text, "models/presets/readers has foreign-files.json");
  std::vector<ForeignFile> files;
  const Json json = Json::parse(*text);
  for (const Json& one : json.at("files")) {
    files.push_back({one.at("name"), one.at("instead"), one.at("marks"),
                     one.value("unless", std::vector<std::string>())});
  }
  return files;
}

}  // namespace

std::string foreign_file(std::string_view text) {
  static const std::vector<ForeignFile> known = foreign_files();
  // Marks of lines begin with the end of the line before.
  const std::string lines = fmt::format("\n{}", text);
  const auto has = [&](const std::string& mark) { return lines.find(mark) != lines.npos; };
  for (const ForeignFile& file : known) {
    const bool fits = std::ranges::any_of(file.marks, [&](const std::vector<std::string>& marks) {
      return std::ranges::all_of(marks, has);
    });
    if (fits && std::ranges::none_of(file.unless, has))
      return fmt::format("it looks like {}, which is not read; instead, {}", file.name,
                         file.instead);
  }
  return "";
}

}  // namespace plimsoll
