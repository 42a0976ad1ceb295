// Lists the terms of several steps side by side.
#include <fmt/format.h>

#include <array>
#include <map>

#include "planner/explain/explain_text.h"

namespace plimsoll {

std::vector<TermRow> term_rows(std::span<const ExplainedStep* const> steps) {
  static constexpr std::array<std::pair<const char*, Picoseconds StepParts::*>, 4> kCompute = {
      {{"forward", &StepParts::forward},
       {"recompute", &StepParts::recompute},
       {"backward", &StepParts::backward},
       {"optimizer", &StepParts::optimizer}}};
  static constexpr std::array<std::pair<const char*, Picoseconds StepParts::*>, 2> kWaiting = {
      {{"bubble", &StepParts::bubble}, {"host", &StepParts::dispatch}}};
  std::vector<TermRow> rows;
  const auto add = [&](const std::string& name, Picoseconds StepParts::*part) {
    TermRow row{name, {}};
    for (const ExplainedStep* step : steps) row.times.push_back(step->parts.*part);
    rows.push_back(std::move(row));
  };
  for (const auto& [name, part] : kCompute) add(name, part);
  // By name; each has a wait and a transfer.
  std::map<std::string, std::vector<Picoseconds>> communications;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto& times = steps[s]->parts.communication;
    for (std::size_t c = 0; c < times.size(); ++c) {
      const std::string name = fmt::format("{}, {}", times[c].group, steps[s]->links[c]);
      for (const auto& [what, time] :
           {std::pair("transfer", times[c].transfer), std::pair("wait", times[c].wait)}) {
        auto& of_name = communications[fmt::format("{}: {}", name, what)];
        of_name.resize(steps.size());
        of_name[s] += time;
      }
    }
  }
  for (auto& [name, times] : communications) rows.push_back({name, std::move(times)});
  for (const auto& [name, part] : kWaiting) add(name, part);
  return rows;
}

}  // namespace plimsoll
