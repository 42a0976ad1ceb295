// Shell values are what the text of a script determines: arithmetic, conditions, and what Slurm
// sets by the script's own options.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/shell/shell_word.h"

namespace plimsoll {

/// Returns the text of a variable, or nothing where it is not known.
using VariableText = std::function<std::optional<std::string>(std::string_view name)>;

/// Returns the value of an expression as in $(( )): integers and variables with + - * / %,
/// comparisons, && || ! and brackets. The result is empty for other signs, for a variable that is
/// not known, for a division by 0, and for numbers above 2^53.
std::optional<std::int64_t> arithmetic_value(std::string_view text, const VariableText& variable);

/// Returns the names in an expression that sets variables, as i++ and N=4 do.
std::vector<std::string> set_by_arithmetic(std::string_view text);

/// Returns whether a command ends well: `true`, `false`, `:`, and tests of texts and integers by
/// `test`, `[` and `[[`. The result is empty for other commands and words that are not known.
std::optional<bool> truth_of(const ShellWords& command);

/// Returns the variables that Slurm sets for a job by the lines "#SBATCH --OPTION=VALUE" of a
/// script (sbatch, OUTPUT ENVIRONMENT VARIABLES): counts of nodes, tasks and GPUs.
std::map<std::string, std::string, std::less<>> slurm_variables(std::string_view script);

}  // namespace plimsoll
