// The report: one self-contained HTML page.
#include "reports/html.h"

#include <fmt/format.h>

#include "reports/markup.h"
#include "reports/report_sections.h"

namespace plimsoll {

std::string report_html(const Plan& plan, const std::optional<Measured>& measured,
                        double tolerance) {
  ReportInput input{plan, measured, std::nullopt};
  if (measured) input.comparison = compare(plan, *measured, tolerance);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{} on {} {} - Plimsoll</title>\n<style>\n",
      escaped(plan.job.name), plan.devices, plan.devices == 1 ? "device" : "devices");
  html += report_style();
  html += "</style>\n</head>\n<body>\n" + header_html(input) + "<main>\n";
  for (auto section : {plan_section, comparison_section, timeline_section, memory_section,
                       training_section, search_section, sources_section}) {
    html += section(input);
  }
  html +=
      "</main>\n<footer><p>Made by <code>planner report</code>. Predicted and measured numbers "
      "come from one program, simulated and run.</p></footer>\n</body>\n</html>\n";
  return html;
}

}  // namespace plimsoll
