// Writes mutated texts of an entry point into files, on which lab/exit-codes runs the programs.
//
// fuzz.mutated_files FOLDER FIRST COUNT ENTRY [EXAMPLE...]: the files FOLDER/FIRST and so on.
// Further examples join those of the entry point.
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/mutation.h"

namespace plimsoll {
namespace {

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (stop != end || error != std::errc()) throw UsageError("no number: " + text);
  return number;
}

void write_mutated(const std::vector<std::string>& words) {
  if (words.size() < 4) throw UsageError("FOLDER FIRST COUNT ENTRY are required");
  const std::uint64_t first = number_of(words[1]), count = number_of(words[2]);
  const EntryPoint& entry = entry_point(words[3]);
  std::vector<std::string> examples;
  for (const auto& path : example_files(entry, PLIMSOLL_SOURCE_DIR))
    examples.push_back(read_file(path));
  for (std::size_t i = 4; i < words.size(); ++i) examples.push_back(read_file(words[i]));
  if (examples.empty()) throw UsageError(words[3] + " has no examples of its own");
  for (std::uint64_t draw = first; draw < first + count; ++draw) {
    std::mt19937_64 random(draw);
    const std::filesystem::path path = std::filesystem::path(words[0]) / std::to_string(draw);
    std::ofstream(path, std::ios::binary) << mutated(examples[draw % examples.size()], random);
  }
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  try {
    plimsoll::write_mutated({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
  return 0;
}
