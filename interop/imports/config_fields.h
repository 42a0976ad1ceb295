// ConfigFields are the values of a config.json, over what the library takes for keys left out.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll {

/// Parses JSON as Python's json writes it. Infinity, -Infinity and NaN, which JSON does not have,
/// become texts, so that a key that needs a number is refused. Throws InputError.
Json parse_python_json(std::string_view text, const std::string& file);
/// Returns the text of a key of an object, or an empty one where there is none.
std::string text_at(const Json& object, const char* key);

/// Getters throw InputError as those of JsonObject do. A key whose value is null is absent, and
/// hides the library's value. Each key that was asked for counts as read. A key OUTER/INNER is the
/// member INNER of the object OUTER.
class ConfigFields {
 public:
  /// `stated` is an object of the file at `pointer`; `defaults` an object, too.
  ConfigFields(const Json& stated, const Json& defaults, std::string file, std::string pointer);
  ConfigFields(const ConfigFields&) = delete;
  ConfigFields& operator=(const ConfigFields&) = delete;

  bool has(const std::string& key);
  std::int64_t size(const std::string& key);  ///< 1 .. 2^30; the key must be there
  double number(const std::string& key, double least, double most);
  /// Returns 0 where the key is empty or absent.
  double dropout(const std::string& key);
  bool boolean(const std::string& key);  ///< false where it is absent
  std::string text(const std::string& key);
  const Json& raw(const std::string& key);
  void mark_read(const std::string& key) {
    read_.insert(key.substr(0, key.find('/')));
    read_.insert(key);
  }
  /// Returns the members of an object, some of which were read, that were not and are stated.
  std::vector<std::string> unread_members(const std::string& key) const;
  bool is_read(const std::string& key) const { return read_.contains(key); }

  /// Returns the error of a key: "found VALUE; MESSAGE". fail() throws it.
  InputError fault(const std::string& key, std::string_view message) const;
  [[noreturn]] void fail(const std::string& key, std::string_view message) const {
    throw fault(key, message);
  }
  const std::string& file() const { return object_.file(); }
  const std::string& pointer() const { return object_.pointer(); }
  /// Returns the place of a key.
  std::string place(const std::string& key) const;
  /// Returns those of the sizes that were read and that only the library states, as "key value".
  const std::vector<std::string>& assumed() const { return assumed_; }
  const Json& stated() const { return stated_; }

 private:
  /// A key's object, and its name there.
  struct Member {
    JsonObject object;
    std::string name;
  };
  Member member(const std::string& key) const;
  bool is_stated(const std::string& key) const;

  const Json& stated_;
  Json values_;
  JsonObject object_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> assumed_;
};

}  // namespace plimsoll
