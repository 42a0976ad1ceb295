// Memory verdicts list two kinds of wrong rows: runs that ran but are predicted not to fit, and
// runs that ran out of memory but are predicted to fit.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "published/validate.h"

namespace plimsoll {

/// The counts and rows of a file, over the rows that were predicted. A row that fits with even
/// routing only counts as a row that fits.
struct MemoryVerdicts {
  std::size_t ran = 0, out_of_memory = 0;
  std::vector<std::string> called_too_large;  ///< rows that ran
  std::vector<std::string> called_to_fit;     ///< rows that were out of memory
};
MemoryVerdicts memory_verdicts(const ValidatedFamily& family);

/// Returns one line with the counts, and one line for each wrong row. It is empty where no row was
/// predicted.
std::string verdicts_text(const MemoryVerdicts& verdicts);
Json verdicts_json(const MemoryVerdicts& verdicts);

}  // namespace plimsoll
