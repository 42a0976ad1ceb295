// Small pieces of HTML and SVG that the sections of the report are made of.
#include "reports/markup.h"

#include <fmt/format.h>

#include <cmath>

#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string class_attribute(std::string_view style) {
  return style.empty() ? std::string() : fmt::format(" class=\"{}\"", style);
}

std::string cell_html(const Cell& cell) {
  const std::string exact = cell.exact.empty() ? "" : fmt::format(" data-exact=\"{}\"", cell.exact);
  if (cell.heading) {
    return fmt::format("<th scope=\"row\"{}{}>{}</th>", class_attribute(cell.style), exact,
                       cell.html);
  }
  return fmt::format("<td{}{}>{}</td>", class_attribute(cell.style), exact, cell.html);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
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
Cell exact_cell(Seconds time) {
  return {to_text(time), "number", false, fmt::format("{}", time.value())};
}
Cell exact_cell(Bytes bytes) {
  return {to_text(bytes), "number", false, fmt::format("{}", bytes.count())};
}
Cell exact_cell(std::int64_t number) {
  return {grouped(number), "number", false, fmt::format("{}", number)};
}
Cell share_cell(double share) {
  return {escaped(percent(share)), "number", false, fmt::format("{:.6g}", share)};
}
Cell swatch_cell(std::string_view style, std::string_view label) {
  return {fmt::format("<span class=\"swatch {}\"></span>{}", style, escaped(label)), "", true};
}

std::string table(std::string_view caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<Cell>>& rows) {
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!caption.empty()) html += fmt::format("<caption>{}</caption>\n", escaped(caption));
  html += "<thead><tr>";
  for (const Column& column : columns) {
    const std::string unit =
        column.unit.empty() ? "" : fmt::format(" data-unit=\"{}\"", column.unit);
    html += fmt::format("<th scope=\"col\"{}{}>{}</th>", class_attribute(column.style), unit,
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

std::string stacked_bar(const std::vector<BarPart>& parts) {
  std::string svg =
      "<svg class=\"stack\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
      "aria-hidden=\"true\">";
  double x = 0;
  for (const BarPart& part : parts) {
    svg += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" width=\"{:.2f}\" height=\"20\"/>",
                       part.style, x, 1000 * part.share);
    x += 1000 * part.share;
  }
  return svg + "</svg>\n";
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

std::string folded(std::string_view summary, const std::string& content) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escaped(summary), content);
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
