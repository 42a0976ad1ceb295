// The sections of the report are made of these small pieces of HTML and SVG.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// Returns text that is safe as content and as a quoted attribute value.
std::string escaped(std::string_view text);

/// A Cell is one cell of a table row; `html` is markup already.
struct Cell {
  std::string html;
  std::string_view style;  ///< class: "", "number", "key"
  bool heading = false;    ///< whether it names its row
};
Cell text_cell(std::string_view text);
Cell number_cell(std::string_view text);
Cell heading_cell(std::string_view text);

struct Column {
  std::string_view title;
  std::string_view style;  ///< style of its cells
};

/// Returns a table. `caption` is plain text and may be empty. A row of one cell heads the rows
/// below it.
std::string table(std::string_view caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<Cell>>& rows);

struct LegendEntry {
  std::string_view style;  ///< class of the swatch
  std::string_view label;
};
std::string legend(const std::vector<LegendEntry>& entries);

std::string section(std::string_view id, std::string_view title, const std::string& content);
/// Returns `svg` with `caption` above it and `note`, which may be empty, below.
std::string figure(std::string_view caption, const std::string& svg, std::string_view note = "");

/// Returns round positions from 0 to at most `most`, about `count` of them: 1, 2 or 5 times a power
/// of ten.
std::vector<double> ticks(double most, int count);

}  // namespace plimsoll
