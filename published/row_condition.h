// A row condition is what a rule asks of one field of a published row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace plimsoll {

/// A RowCondition is a question about a JSON value. Text is compared without regard to case.
class RowCondition {
 public:
  /// A scalar asks for that value, and null for a field that is not there. A list asks for one of
  /// its conditions. An object asks for all of its members:
  ///
  ///   contains     a text, or texts in this order, somewhere in the value
  ///   contains_letters   the same of one text, where only letters and digits count
  ///   starts_with  a text
  ///   least, most  bounds of a number
  ///   not          a condition that does not hold
  ///   has          a condition that holds for an element of a list
  /// Throws InputError at `key` of `object`.
  RowCondition(JsonObject& object, const std::string& key);

  bool holds(const Json& value) const;

 private:
  enum class Kind {
    equal,
    any,
    all,
    none,
    has,
    contains,
    contains_letters,
    starts_with,
    least,
    most
  };

  RowCondition(const Json& json, const JsonObject& object, const std::string& key);
  RowCondition(std::string_view member, const Json& json, const JsonObject& object,
               const std::string& key);
  void read_parts(const Json& json, const JsonObject& object, const std::string& key);

  Kind kind_ = Kind::equal;
  Json value_;
  std::vector<std::string> texts_;
  std::vector<RowCondition> parts_;
};

}  // namespace plimsoll
