// Finds the export of a plan's framework.
#include "planner/export/report_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "planner/export/flags_script.h"

namespace plimsoll {

std::optional<ReportFlags> report_flags(const Plan& plan) {
  const auto takes = [&](const FlagTable& table) {
    return table.target && table.target->exported &&
           std::ranges::find(table.frameworks, plan.framework.name) != table.frameworks.end();
  };
  const std::vector<FlagTable>& tables = flag_tables();
  // A framework's own flags come before files that other programs read for it.
  const FlagTable* table = flag_table_of(plan.framework.name);
  if (table == nullptr || !takes(*table)) {
    const auto found = std::ranges::find_if(tables, takes);
    if (found == tables.end()) return std::nullopt;
    table = &*found;
  }
  try {
    const PlanFlags flags = flags_of(plan, *table, "plan");
    ReportFlags result;
    result.target = table->target->name;
    result.text =
        table->document ? flags_document(plan, *table, flags) : flags_script(plan, *table, flags);
    for (const LostChoice& one : flags.lost) {
      result.lost +=
          fmt::format("{}{} is {}, and the flags give {}", result.lost.empty() ? "" : "; ", one.key,
                      one.planned, one.nearest);
    }
    return result;
  } catch (const InputError&) {  // the program has no such job
    return std::nullopt;
  }
}

}  // namespace plimsoll
