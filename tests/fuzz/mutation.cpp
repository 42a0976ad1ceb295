// Mutations of JSON trees and of bytes.
#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace plimsoll {
namespace {

using Tree = nlohmann::ordered_json;
using Random = std::mt19937_64;

constexpr std::size_t kMostNodes = 20000;  // of a tree, so that large files are changed fast

std::size_t below(Random& random, std::size_t end) { return end == 0 ? 0 : random() % end; }

constexpr std::array<const char*, 24> kNumbers = {"0",
                                                  "-1",
                                                  "1",
                                                  "-0.0",
                                                  "0.5",
                                                  "1e308",
                                                  "1e309",
                                                  "-1e308",
                                                  "5e-324",
                                                  "2147483647",
                                                  "2147483648",
                                                  "4294967296",
                                                  "9007199254740992",
                                                  "9007199254740993",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "-9223372036854775808",
                                                  "18446744073709551615",
                                                  "18446744073709551616",
                                                  "1e18",
                                                  "1e400",
                                                  "99999999999999999999999999999999",
                                                  "3.0000000000000001",
                                                  "1E+2"};

constexpr std::array<const char*, 20> kTokens = {"null",
                                                 "true",
                                                 "false",
                                                 "{}",
                                                 "[]",
                                                 "\"\"",
                                                 "\\u0000",
                                                 "\xff\xfe",
                                                 "\xc2\x9b",
                                                 "\x1b[2J",
                                                 "</script>",
                                                 "$(id)",
                                                 "../../etc/passwd",
                                                 "=",
                                                 "\n",
                                                 ",",
                                                 "\xe2\x80\xae",
                                                 "NaN",
                                                 "Infinity",
                                                 "%n%s"};

void add_nodes(Tree& node, std::vector<Tree*>& nodes) {
  if (nodes.size() >= kMostNodes) return;
  nodes.push_back(&node);
  if (!node.is_structured()) return;
  for (Tree& child : node) add_nodes(child, nodes);
}

Tree extreme(Random& random) {
  switch (below(random, 8)) {
    case 0:
      return nullptr;
    case 1:
      return below(random, 2) == 0;
    case 2:
      return std::string(below(random, 6000), 'x');
    case 3:
      return Tree::array();
    case 4:
      return Tree::object();
    case 5:
      return "\xc2\x9b\x1b[31m";
    default:
      return Tree::parse(kNumbers[below(random, kNumbers.size())], nullptr, false);
  }
}

Tree nested(Tree inner, std::size_t depth) {
  for (std::size_t i = 0; i < depth; ++i) inner = Tree::array({std::move(inner)});
  return inner;
}

/// Takes one element of an object or array away, or adds one again.
void change_elements(Tree& node, Random& random) {
  if (!node.is_structured() || node.empty()) {
    node = extreme(random);
    return;
  }
  const std::size_t at = below(random, node.size());
  if (node.is_array()) {
    if (below(random, 2) == 0) {
      node.erase(at);
    } else {
      for (std::size_t i = 0, n = 1 + below(random, 20); i < n; ++i) node.push_back(Tree(node[at]));
    }
    return;
  }
  const std::string key = std::next(node.begin(), std::ptrdiff_t(at)).key();
  if (below(random, 2) == 0) {
    node.erase(key);
  } else {
    const Tree value = node[key];
    node[below(random, 2) == 0 ? key + "x" : std::string(kTokens[below(random, kTokens.size())])] =
        value;
  }
}

void change_tree(Tree& tree, Random& random) {
  std::vector<Tree*> nodes;
  add_nodes(tree, nodes);
  Tree& node = *nodes[below(random, nodes.size())];
  switch (below(random, 6)) {
    case 0:
    case 1:
      node = extreme(random);
      break;
    case 2:
      change_elements(node, random);
      break;
    case 3: {
      const Tree other = *nodes[below(random, nodes.size())];
      node = other;
      break;
    }
    case 4:
      node = nested(node, 1 + below(random, below(random, 8) == 0 ? 200 : 4));
      break;
    default:
      if (node.is_number_integer()) {
        const bool more = below(random, 2) == 0;
        const auto value = node.get<std::uint64_t>();  // it wraps round at both ends
        node = std::int64_t(more ? value + 1 : value - 1);
      } else if (node.is_string()) {
        node = node.get<std::string>() + kTokens[below(random, kTokens.size())];
      } else {
        node = extreme(random);
      }
  }
}

/// Replaces a number somewhere in the text.
void change_number(std::string& text, Random& random) {
  const std::size_t from = text.find_first_of("0123456789", below(random, text.size() + 1));
  if (from == text.npos) return;
  std::size_t to = from;
  while (to < text.size() && std::isdigit(static_cast<unsigned char>(text[to])) != 0) ++to;
  text.replace(from, to - from, kNumbers[below(random, kNumbers.size())]);
}

void change_bytes(std::string& text, Random& random) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t length = 1 + below(random, below(random, 4) == 0 ? 200 : 8);
  switch (below(random, 7)) {
    case 0:
      if (at < text.size()) text[at] = char(text[at] ^ char(1u << below(random, 8)));
      break;
    case 1:
      if (at < text.size()) text[at] = char(below(random, 256));
      break;
    case 2:
      text.erase(std::min(at, text.size()), length);
      break;
    case 3:
      text.insert(at, text.substr(below(random, text.size() + 1), length));
      break;
    case 4:
      text.insert(at, kTokens[below(random, kTokens.size())]);
      break;
    case 5:
      if (below(random, 4) == 0) text.resize(at);
      break;
    default:
      change_number(text, random);
  }
}

/// As editors of Windows write a text: behind a byte order mark, or with other ends of lines.
std::string as_other_editors_write(std::string text, Random& random) {
  const std::size_t way = below(random, 32);
  if (way == 0) return "\xEF\xBB\xBF" + text;
  if (way != 1) return text;
  for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2)
    text.insert(at, 1, '\r');
  return text;
}

/// Returns JSON that was changed as a tree so often, or nothing where the text is no JSON.
std::optional<std::string> changed_as_tree(std::string_view text, std::size_t changes,
                                           Random& random) {
  Tree tree = Tree::parse(text, nullptr, false);
  if (tree.is_discarded()) return std::nullopt;
  for (std::size_t i = 0; i < changes; ++i) change_tree(tree, random);
  const int indent = int(below(random, 2)) - 1;  // on one line, or on a line for each value
  return tree.dump(indent, ' ', false, Tree::error_handler_t::ignore);
}

/// Changes one line as a tree, as a journal has a tree on each. Returns nothing where the drawn
/// line is no JSON.
std::optional<std::string> changed_line(std::string_view text, std::size_t changes,
                                        Random& random) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t before = at == 0 ? text.npos : text.rfind('\n', at - 1);
  const std::size_t begin = before == text.npos ? 0 : before + 1;
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  auto line = changed_as_tree(text.substr(begin, end - begin), changes, random);
  if (!line) return std::nullopt;
  std::erase(*line, '\n');
  return std::string(text.substr(0, begin)) + *line + std::string(text.substr(end));
}

}  // namespace

std::string mutated(std::string_view text, std::mt19937_64& random) {
  const std::size_t changes = 1 + below(random, 3);
  if (below(random, 4) != 0) {
    if (auto tree = changed_as_tree(text, changes, random))
      return as_other_editors_write(std::move(*tree), random);
    if (auto line = changed_line(text, changes, random))
      return as_other_editors_write(std::move(*line), random);
  }
  std::string changed(text);
  for (std::size_t i = 0; i < changes; ++i) change_bytes(changed, random);
  return as_other_editors_write(std::move(changed), random);
}

}  // namespace plimsoll
