// The forms in which a sweep is written: text, JSON, CSV and one HTML page.
#pragma once

#include <string>

#include "planner/sweep/sweep.h"

namespace plimsoll {

/// Returns a table of at most a hundred columns, a row for each point, with what kept points from
/// having a plan, and the answers below it.
std::string sweep_brief(const Sweep& sweep);
/// Returns this table with all columns, whatever their width.
std::string sweep_text(const Sweep& sweep);
/// Returns the rows and the answers as docs/reference/sweep.md says.
std::string sweep_json(const Sweep& sweep);
/// Returns a line of names, then a line for each point, quoted as RFC 4180 says.
std::string sweep_csv(const Sweep& sweep);
/// Returns a page with the answers, charts over devices, and the table. It loads nothing, and can
/// be read without its script.
std::string sweep_page(const Sweep& sweep);

/// Returns a number with three significant digits: "0.123", "12.3", "4,560", "1.23 M".
std::string short_number(double value);
/// Returns sentences that answer which point is fastest, and which is cheapest within the deadline.
std::vector<std::string> answer_lines(const Sweep& sweep);
/// Returns what the rows share: the job, the tokens and the deadline.
std::string points_headline(const Sweep& sweep);
/// Returns this with the reserve.
std::string sweep_headline(const Sweep& sweep);

/// Which columns tell the points of a sweep apart, beside cluster and devices.
struct VaryingColumns {
  bool framework = false, global_batch = false, sequence = false;
};
VaryingColumns varying_columns(const Sweep& sweep);
/// Returns the name of a point without its devices: "dgx, batch 1024".
std::string series_name(const SweepPoint& point, const VaryingColumns& varying);

}  // namespace plimsoll
