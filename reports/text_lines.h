// Text lines: labelled lines of a terminal that are at most a hundred columns wide.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"

namespace plimsoll {

/// Returns the text behind its label: "memory   66.0 of 79.6 GiB\n". A text that is too wide goes
/// on below its own beginning; it is broken behind a comma, a semicolon or a sentence, else at a
/// space. Only a single word may be wider than a line. Returns nothing for an empty text.
std::string labelled_line(std::string_view label, std::string_view text,
                          std::size_t label_width = 9);
/// Returns a command of a shell behind a label. One that is too wide goes on behind a backslash, as
/// shells take it.
std::string command_line(std::string_view label, std::string_view command,
                         std::size_t label_width = 9);
/// Returns the number of lines.
std::size_t count_lines(std::string_view text);

}  // namespace plimsoll
