// Finds the export that states a plan best.
#include "interop/exports/report_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

std::optional<PlanExport> plan_export(const Plan& plan) {
  std::optional<PlanExport> best;
  const auto look = [&](const FlagTable& table) {
    if (!table.target || !table.target->exported || table.target->by_version) return;
    if (std::ranges::find(table.frameworks, plan.framework.name) == table.frameworks.end()) return;
    try {
      PlanFlags flags = flags_of(plan, table, "plan");
      if (!best || flags.lost.size() < best->flags.lost.size()) best = {&table, std::move(flags)};
    } catch (const InputError&) {  // the program has no such job
    }
  };
  const FlagTable* own = flag_table_of(plan.framework.name);
  if (own != nullptr) look(*own);
  for (const FlagTable& table : flag_tables()) {
    if (best && best->flags.lost.empty()) break;
    if (&table != own) look(table);
  }
  return best;
}

std::optional<ReportFlags> report_flags(const Plan& plan) {
  const auto best = plan_export(plan);
  if (!best) return std::nullopt;
  const auto& [table, flags] = *best;
  ReportFlags result;
  result.target = table->target->name;
  result.text = table->document && !table->options ? flags_document(plan, *table, flags)
                                                   : flags_script(plan, *table, flags);
  for (const LostChoice& one : flags.lost) {
    result.lost += fmt::format("{}{} is {}, and the flags give {}", result.lost.empty() ? "" : "; ",
                               one.key, one.planned, one.nearest);
  }
  return result;
}

}  // namespace plimsoll
