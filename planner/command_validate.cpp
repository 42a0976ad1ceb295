// `planner validate`: published runs, predicted.
#include <filesystem>

#include "base/command_line.h"
#include "planner/commands.h"
#include "planner/validate.h"

namespace plimsoll {

ExitCode run_validate(const ValidateOptions& options) {
  std::vector<ValidatedFamily> families;
  for (const std::string& file : options.cases) {
    families.push_back(
        validate(std::filesystem::path(file).stem().string(), read_published_runs(file)));
  }
  print_result(options.json ? validation_json(families) : validation_text(families));
  return ExitCode::ok;
}

}  // namespace plimsoll
