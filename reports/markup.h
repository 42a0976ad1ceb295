// The sections of the report are made of these small pieces of HTML and SVG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Returns text that is safe as content and as a quoted attribute value. Files have no hidden
/// characters in it (base/json.h).
std::string escaped(std::string_view text);

/// A Cell is one cell of a table row; `html` is markup already.
struct Cell {
  std::string html;
  std::string_view style;  ///< class: "", "number", "key"
  bool heading = false;    ///< whether it names its row
  std::string exact{};     ///< sorted and downloaded instead of the text where it is not empty
};
Cell text_cell(std::string_view text);
Cell number_cell(std::string_view text);
Cell heading_cell(std::string_view text);
Cell exact_cell(Seconds time);         ///< "18.1 s", and exactly so many seconds
Cell exact_cell(Bytes bytes);          ///< "63.6 GiB", and exactly so many bytes
Cell exact_cell(std::int64_t number);  ///< "12,345"
Cell share_cell(double share);         ///< "4.2 %", and exactly 0.042
Cell swatch_cell(std::string_view style, std::string_view label);  ///< heads its row, in a colour

struct Column {
  std::string_view title;
  std::string_view style;   ///< style of its cells
  std::string_view unit{};  ///< unit of exact values: "s", "bytes"
};

/// Returns a table. `caption` is plain text and may be empty. A row of one cell heads the rows
/// below it. The page's script lets readers sort the table and save it as CSV.
std::string table(std::string_view caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<Cell>>& rows);

struct LegendEntry {
  std::string_view style;  ///< class of the swatch
  std::string_view label;
};
std::string legend(const std::vector<LegendEntry>& entries);

/// A part of a bar.
struct BarPart {
  std::string_view style;  ///< class of its colour
  double share = 0;        ///< of the bar's width
};
/// Returns a bar of parts, side by side. A table beside it has the numbers.
std::string stacked_bar(const std::vector<BarPart>& parts);

std::string section(std::string_view id, std::string_view title, const std::string& content);
/// Returns `svg` with `caption` above it and `note`, which may be empty, below.
std::string figure(std::string_view caption, const std::string& svg, std::string_view note = "");
/// Returns `content` that is folded away until a reader opens it.
std::string folded(std::string_view summary, const std::string& content);

/// Returns round positions from 0 to at most `most`, about `count` of them: 1, 2 or 5 times a power
/// of ten.
std::vector<double> ticks(double most, int count);

}  // namespace plimsoll
