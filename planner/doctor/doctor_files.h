// Reads files of /proc and /sys. Internal to doctor.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace plimsoll {

/// Returns the text of a small file, without the newline at its end, if the file can be read.
inline std::optional<std::string> text_of(const std::filesystem::path& path) {
  try {
    std::string text = read_file(path, Bytes(1 << 22));
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Returns the parts between separators, without spaces around them.
inline std::vector<std::string> trimmed_parts(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    std::string_view part = text.substr(at, end - at);
    const std::size_t first = part.find_first_not_of(" \t\r");
    const std::size_t last = part.find_last_not_of(" \t\r");
    parts.emplace_back(first == part.npos ? "" : part.substr(first, last + 1 - first));
    at = end + 1;
  }
  return parts;
}

/// Returns the rest of the line that begins with `key`.
inline std::optional<std::string> line_after(std::string_view text, std::string_view key) {
  for (const std::string& line : trimmed_parts(text, '\n')) {
    if (std::string_view(line).starts_with(key)) {
      const std::size_t first = line.find_first_not_of(" \t", key.size());
      return first == line.npos ? "" : line.substr(first);
    }
  }
  return std::nullopt;
}

}  // namespace plimsoll
