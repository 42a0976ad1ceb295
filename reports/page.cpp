// Writes the frame of a page, with the content policy of its style sheet and script.
#include "reports/page.h"

#include <fmt/format.h>

#include "base/file.h"
#include "reports/markup.h"

namespace plimsoll {
namespace {

unsigned hex_value(char digit) {
  return digit <= '9' ? unsigned(digit - '0') : unsigned(digit - 'a' + 10);
}

/// Returns the SHA-256 of a text in base 64 (RFC 4648), as content policies write it.
std::string digest_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = digest(text);  // 64 digits: 21 times 12 bits, and 4 bits
  std::string coded;
  for (std::size_t at = 0; at < hex.size(); at += 3) {
    unsigned bits = 0;
    for (std::size_t i = at; i < at + 3; ++i) {
      bits = bits << 4 | (i < hex.size() ? hex_value(hex[i]) : 0);
    }
    coded += kDigits[bits >> 6];
    if (at + 1 < hex.size()) coded += kDigits[bits & 63];
  }
  return coded + "=";
}

}  // namespace

std::string page_html(std::string_view title, const std::string& body) {
  const std::string_view style = report_style(), script = page_script();
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>",
      digest_base64(script), digest_base64(style), escaped(title));
  html += style;
  html += "</style>\n</head>\n<body>\n" + body + "<script>";
  html += script;
  return html + "</script>\n</body>\n</html>\n";
}

std::string data_block(std::string_view id, const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";  // no end of the block within a string
    } else {
      safe += c;
    }
  }
  return fmt::format("<script type=\"application/json\" id=\"{}\">{}</script>\n", id, safe);
}

}  // namespace plimsoll
