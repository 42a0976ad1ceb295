// Layout of the long files: indented outside, one line per row inside.
#include "plan/json_layout.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr std::size_t kLineWidth = 100;
constexpr std::size_t kMostInnerMembers = 16;

/// On one line. Bytes that are not UTF-8 (a name from the command line) become U+FFFD.
std::string text_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool holds_scalars(const Json& value) {
  return std::none_of(value.begin(), value.end(),
                      [](const Json& member) { return member.is_structured(); });
}

/// An element of an array is a row of a table when what it nests is short and flat.
bool is_row(const Json& element) {
  return std::all_of(element.begin(), element.end(), [&](const Json& member) {
    if (!member.is_structured()) return true;
    return element.is_object() && member.size() <= kMostInnerMembers && holds_scalars(member);
  });
}

bool on_one_line(const Json& value, bool element) {
  if (!value.is_structured() || (element && is_row(value))) return true;
  if (!holds_scalars(value)) return false;
  return value.is_array() || text_of(value).size() <= kLineWidth;
}

void append(std::string& out, const Json& value, std::size_t depth, bool element) {
  if (on_one_line(value, element)) {
    out += text_of(value);
    return;
  }
  const std::string indent(2 * (depth + 1), ' ');
  const char* separator = "\n";
  out += value.is_object() ? '{' : '[';
  for (auto member = value.begin(); member != value.end(); ++member) {
    out += separator;
    out += indent;
    if (value.is_object()) out += text_of(Json(member.key())) + ": ";
    append(out, *member, depth + 1, value.is_array());
    separator = ",\n";
  }
  out += '\n' + std::string(2 * depth, ' ');
  out += value.is_object() ? '}' : ']';
}

}  // namespace

std::string line_text(const Json& value) {
  std::string out;
  append(out, value, 0, false);
  out += '\n';
  return out;
}

}  // namespace plimsoll
