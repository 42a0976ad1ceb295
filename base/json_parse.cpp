// The strict parser: nlohmann's lexer, with every limit enforced while it reads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostString = 4096;
constexpr std::size_t kMostKey = 256;
constexpr std::size_t kMostMembers = 10'000;
constexpr std::size_t kMostElements = 1'000'000;
constexpr std::int64_t kMostInteger = std::int64_t{1} << 53;
constexpr std::size_t kMostFileBytes = std::size_t{64} << 20;

/// "3:14" of a byte offset.
std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == before.npos ? before.size() : before.size() - newline - 1;
  return fmt::format("{}:{}", line, std::max<std::size_t>(column, 1));
}

/// The code point at `at` of well-formed UTF-8; moves `at` behind it.
char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code = length == 1 ? lead : lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(at + i) & 0x3f);
  at += length;
  return code;
}

/// Characters that would let a file's text change what a terminal or a report shows around it.
bool is_hidden(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return control || direction;
}

/// Receives nlohmann's events, enforces the limits and builds the document.
class StrictBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  StrictBuilder(std::string_view text, const std::string& file) : text_(text), file_(file) {}
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) {
    if (value < -kMostInteger || value > kMostInteger) too_large();
    return put(value);
  }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(kMostInteger)) too_large();
    return put(static_cast<number_integer_t>(value));
  }
  bool number_float(number_float_t value, const string_t& token) {
    // Integers beyond 64 bits arrive here too, already rounded.
    if (token.find_first_of(".eE") == token.npos) too_large();
    if (!std::isfinite(value)) fail("the number is not finite");
    return put(value);
  }
  bool string(string_t& value) {
    if (value.size() > kMostString) {
      fail(fmt::format("a string of {} bytes; at most {} are allowed", value.size(), kMostString));
    }
    check_characters(value);
    return put(std::move(value));
  }
  bool binary(binary_t&) { fail("binary values are not JSON"); }

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& value) {
    Level& level = levels_.back();
    level.has_key = false;  // a refused key is no part of the pointer
    if (value.size() > kMostKey) {
      fail(fmt::format("a key of {} bytes; at most {} are allowed", value.size(), kMostKey));
    }
    check_characters(value);
    if (level.keys.size() == kMostMembers) {
      fail(fmt::format("more than {} members in one object", kMostMembers));
    }
    const bool is_new = level.keys.insert(value).second;
    level.key = std::move(value);
    level.has_key = true;
    if (!is_new) fail(fmt::format("duplicate key \"{}\"", printable(level.key)));
    return true;
  }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& error) {
    // "[json.exception...] parse error at line 1, column 2: syntax error while ...": the place is
    // said in our own words, the rest is kept.
    std::string_view message = error.what();
    const std::size_t place = message.find("column ");
    const std::size_t colon = place == message.npos ? place : message.find(": ", place);
    if (colon != message.npos) {
      message.remove_prefix(colon + 2);
    } else if (const std::size_t bracket = message.find("] "); bracket != message.npos) {
      message.remove_prefix(bracket + 2);
    }
    throw InputError(file_, line_and_column(text_, position), printable(message, 240));
  }

 private:
  struct Level {
    Json* value;
    bool has_key = false;
    std::string key = {};             ///< of the member being read
    std::set<std::string> keys = {};  ///< seen so far
  };

  Json& place(Json value) {
    if (levels_.empty()) return root_ = std::move(value);
    Level& level = levels_.back();
    if (level.value->is_array()) {
      auto& elements = level.value->get_ref<Json::array_t&>();
      if (elements.size() == kMostElements) {
        fail(fmt::format("more than {} elements in one array", kMostElements));
      }
      return elements.emplace_back(std::move(value));
    }
    // Straight to the end: the map's own insertion searches all members first.
    auto& members =
        static_cast<Json::object_t::Container&>(level.value->get_ref<Json::object_t&>());
    return members.emplace_back(level.key, std::move(value)).second;
  }

  bool put(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json value) {
    if (levels_.size() == kMostDepth) fail(fmt::format("nested deeper than {}", kMostDepth));
    Json& placed = place(std::move(value));
    levels_.push_back({.value = &placed});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  void check_characters(std::string_view text) const {
    for (std::size_t at = 0; at < text.size();) {
      const char32_t code = next_code_point(text, at);
      if (is_hidden(code)) {
        fail(fmt::format("the text contains the control character U+{:04X}",
                         static_cast<unsigned>(code)));
      }
    }
  }

  [[noreturn]] void too_large() const {
    fail("an integer outside -2^53 ... 2^53, which JSON readers do not keep exactly");
  }

  [[noreturn]] void fail(const std::string& message) const {
    std::string pointer;
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      const Level& level = levels_[i];
      // Open containers are in their parent already, the value being refused is not.
      const std::size_t index = level.value->size() - (i + 1 < levels_.size() ? 1 : 0);
      if (level.value->is_array()) {
        pointer += fmt::format("/{}", index);
      } else if (level.has_key) {
        pointer = json_pointer(pointer, level.key);
      }
    }
    throw InputError(file_, pointer, message);
  }

  std::string_view text_;
  const std::string& file_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  if (text.size() > kMostFileBytes) throw InputError(file, "", "is larger than 64 MiB");
  // nlohmann's lexer takes it for the end of the input, whatever follows.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    throw InputError(file, line_and_column(text, nul), "a NUL byte");
  }
  StrictBuilder builder(text, file);
  const bool done = Json::sax_parse(text.begin(), text.end(), &builder);
  INVARIANT(done, "every refusal throws");
  return builder.take();
}

}  // namespace plimsoll
