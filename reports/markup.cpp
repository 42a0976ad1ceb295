// Small pieces of HTML and SVG that the sections of the report are made of.
#include "reports/markup.h"

#include <fmt/format.h>

#include <cmath>

namespace plimsoll {
namespace {

std::string class_attribute(std::string_view style) {
  return style.empty() ? std::string() : fmt::format(" class=\"{}\"", style);
}

std::string cell_html(const Cell& cell) {
  if (cell.heading) {
    return fmt::format("<th scope=\"row\"{}>{}</th>", class_attribute(cell.style), cell.html);
  }
  return fmt::format("<td{}>{}</td>", class_attribute(cell.style), cell.html);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

Cell text_cell(std::string_view text) { return {escaped(text), "", false}; }
Cell number_cell(std::string_view text) { return {escaped(text), "number", false}; }
Cell heading_cell(std::string_view text) { return {escaped(text), "", true}; }

std::string table(std::string_view caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<Cell>>& rows) {
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!caption.empty()) html += fmt::format("<caption>{}</caption>\n", escaped(caption));
  html += "<thead><tr>";
  for (const Column& column : columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", class_attribute(column.style),
                        escaped(column.title));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : rows) {
    if (row.size() == 1) {
      html +=
          fmt::format("<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr>\n",
                      columns.size(), row[0].html);
      continue;
    }
    html += "<tr>";
    for (const Cell& cell : row) html += cell_html(cell);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table></div>\n";
}

std::string legend(const std::vector<LegendEntry>& entries) {
  std::string html = "<ul class=\"legend\">";
  for (const LegendEntry& entry : entries) {
    html += fmt::format("<li><span class=\"swatch {}\"></span>{}</li>", entry.style,
                        escaped(entry.label));
  }
  return html + "</ul>\n";
}

std::string section(std::string_view id, std::string_view title, const std::string& content) {
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\">\n"
      "<h2 id=\"{0}-title\">{1}</h2>\n{2}</section>\n",
      id, escaped(title), content);
}

std::string figure(std::string_view caption, const std::string& svg, std::string_view note) {
  std::string html =
      fmt::format("<figure>\n<figcaption>{}</figcaption>\n<div class=\"wide\">\n{}</div>\n",
                  escaped(caption), svg);
  if (!note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", escaped(note));
  return html + "</figure>\n";
}

std::vector<double> ticks(double most, int count) {
  std::vector<double> positions = {0};
  if (!(most > 0) || count < 1) return positions;
  const double wanted = most / count;
  const double power = std::pow(10.0, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= wanted) step = factor * power;
  }
  for (int i = 1; i * step <= most * (1 + 1e-9); ++i) positions.push_back(i * step);
  return positions;
}

}  // namespace plimsoll
