// A Description says what is in an input file: facts in sections, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"

namespace plimsoll {

/// A Fact has a value for programs and words for people.
struct Fact {
  std::string label;  ///< "peak bf16"
  std::string text;   ///< "989 TFLOP/s"
  Json value;
  std::string unit = {};  ///< ends the JSON key: "flops_per_s"; empty: the label alone is the key
};

struct Section {
  std::string title;
  std::string key;  ///< in JSON
  std::vector<Fact> facts = {};
  bool is_list = false;  ///< JSON has the values in a list, without the labels

  /// Adds a fact whose value is its text.
  void add(std::string label, std::string text);
  void add(std::string label, std::string text, Json value, std::string unit = "");
  /// Adds an integer with grouped digits.
  void add_count(std::string label, std::int64_t count);
  void add_bytes(std::string label, Bytes bytes);
  void add_time(std::string label, Seconds time);
};

struct Description {
  std::string kind, name;
  std::vector<Section> sections;
};

/// Returns "KIND NAME", then for each section its title and a line for each fact, or two for a long
/// label. Sections without facts are left out.
std::string description_text(const Description& description);
/// Returns an object with `kind`, `name` and an object, or a list, for each section. Blanks in
/// labels become '_'.
Json description_json(const Description& description);

}  // namespace plimsoll
