// The report: one self-contained HTML page.
#include "reports/sections/html.h"

#include <fmt/format.h>

#include "reports/markup.h"
#include "reports/page.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {

std::string report_html(ReportInput input) {
  const Plan& plan = input.plan;
  if (input.measured) input.comparison = compare(plan, *input.measured, input.tolerance);
  std::string body =
      "<a class=\"skip\" href=\"#plan\">Skip to the plan</a>\n" + header_html(input) + "<main>\n";
  for (auto section : {plan_section, comparison_section, timeline_section, memory_section,
                       communication_section, training_section, search_section, sensitivity_section,
                       calibration_section, sources_section}) {
    body += section(input);
  }
  body +=
      "</main>\n<footer><p>Made by <code>planner report</code>. Predicted and measured numbers "
      "come from one program, simulated and run.</p></footer>\n";
  return page_html(fmt::format("{} on {} {} - Plimsoll", plan.job.name, plan.devices,
                               plan.devices == 1 ? "device" : "devices"),
                   body);
}

std::string report_html(const Plan& plan, const std::optional<Measured>& measured,
                        double tolerance) {
  return report_html(ReportInput{plan, measured, tolerance});
}

}  // namespace plimsoll
