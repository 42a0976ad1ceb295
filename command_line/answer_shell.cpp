// Completes the command line of a program, or prints its manual page.
#include "command_line/answer_shell.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_line.h"
#include "command_line/completion.h"
#include "command_line/manual.h"
#include "command_line/option_types.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// Types whose values are neither files nor known.
constexpr std::string_view kNoFiles[] = {"TIME", "PRECISION"};

NextWords program_values(std::string_view type, std::string_view) {
  NextWords found;
  found.files = std::ranges::find(kNoFiles, type) == std::end(kNoFiles);
  if (type != "CLUSTER") return found;
  for (const Preset& preset : cluster_presets()) found.words.push_back({std::string(preset.name)});
  return found;
}

}  // namespace

bool answer_shell(CLI::App& program, int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view asked = argv[1];
  name_types(program);
  if (asked == "--man") {
    print_result(manual_page(program, program.get_name()));
    return true;
  }
  if (asked != "--complete") return false;
  const int first = argc > 2 && std::string_view(argv[2]) == "--" ? 3 : 2;
  const std::vector<std::string> words(argv + std::min(first, argc), argv + argc);
  print_result(next_words_text(complete(program, words, program_values)));
  return true;
}

}  // namespace plimsoll
