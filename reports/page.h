// Page: one HTML file that shows text, charts and tables, and lets no browser load anything else.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// Returns a page with this title (plain text) and body (markup). Style sheet and script are inside
/// the page. Its content policy names both by their SHA-256 and forbids all else: other scripts and
/// styles, attributes with styles, and every address.
std::string page_html(std::string_view title, const std::string& body);

/// The style sheet of all pages, reports/page/style.css.
std::string_view report_style();

/// The scripts of reports/page, one behind the other. A page can be read without them.
std::string_view page_script();

/// Returns a block of data for the script. `json` may hold any text.
std::string data_block(std::string_view id, const std::string& json);

}  // namespace plimsoll
