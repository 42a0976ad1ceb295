// Entry points of untrusted text: what reads it, and where valid examples lie. Tests, soaks and
// fuzzers share them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// An EntryPoint reads text of one kind.
struct EntryPoint {
  std::string_view name;
  /// Reads the text, and writes and reads again what has a writer. Throws what the product throws
  /// for bad input, and std::logic_error where a written text is not read as it was written.
  void (*read)(std::string_view text);
  /// folders and files below the source folder; of a folder, all files in it
  std::vector<std::string_view> examples;
};

std::span<const EntryPoint> entry_points();
/// Returns the entry point of a name. Throws UsageError where there is none.
const EntryPoint& entry_point(std::string_view name);

/// Returns the files of an entry point's examples, sorted by name, and after them its past findings
/// in tests/fuzz/findings/NAME.
std::vector<std::filesystem::path> example_files(const EntryPoint& entry,
                                                 const std::filesystem::path& source);

/// Lets an entry point read the text, and returns whether it took it. The product's errors for bad
/// input are caught. Throws std::logic_error, with the place, where anything else is thrown or an
/// error's text would write controls to a terminal.
bool takes(const EntryPoint& entry, std::string_view text);

}  // namespace plimsoll
