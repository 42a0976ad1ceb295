// Predicted fits are compared with runs that ran or ran out of memory.
#include "published/memory_verdicts.h"

#include <fmt/format.h>

namespace plimsoll {

MemoryVerdicts memory_verdicts(const ValidatedFamily& family) {
  MemoryVerdicts verdicts;
  for (const ValidatedRun& row : family.runs) {
    if (!row.predicted) continue;
    const bool ran = !row.run.out_of_memory;
    ++(ran ? verdicts.ran : verdicts.out_of_memory);
    if (ran == (row.predicted->fits != Fits::no)) continue;
    (ran ? verdicts.called_too_large : verdicts.called_to_fit).push_back(row.run.id);
  }
  return verdicts;
}

std::string verdicts_text(const MemoryVerdicts& verdicts) {
  if (verdicts.ran + verdicts.out_of_memory == 0) return "";
  std::string text = fmt::format("  {:17} {:4} ran, {} of them predicted not to fit", "memory",
                                 verdicts.ran, verdicts.called_too_large.size());
  if (verdicts.out_of_memory > 0) {
    text += fmt::format("; {} ran out of memory, {} of them predicted to fit",
                        verdicts.out_of_memory, verdicts.called_to_fit.size());
  }
  text += "\n";
  for (const std::string& id : verdicts.called_too_large) {
    text += fmt::format("    ran, predicted not to fit: {}\n", id);
  }
  for (const std::string& id : verdicts.called_to_fit) {
    text += fmt::format("    ran out of memory, predicted to fit: {}\n", id);
  }
  return text;
}

Json verdicts_json(const MemoryVerdicts& verdicts) {
  return {{"ran", verdicts.ran},
          {"out_of_memory", verdicts.out_of_memory},
          {"called_too_large", verdicts.called_too_large},
          {"called_to_fit", verdicts.called_to_fit}};
}

}  // namespace plimsoll
