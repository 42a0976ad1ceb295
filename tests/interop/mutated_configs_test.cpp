// Files that are damaged in any way are read or refused with their place, and never end the
// process.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/imports/imported.h"

namespace plimsoll {
namespace {

/// The texts of all files of tests/interop/data.
const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/interop/data")) {
      if (entry.path().filename() != "parameters.json") paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    std::vector<std::string> read;
    for (const auto& path : paths) read.push_back(read_file(path));
    return read;
  }();
  return all;
}

/// A job that was read is one that a job file can hold. Anything else is an InputError.
void read_or_refuse(const std::string& text) {
  try {
    const Imported imported = import_text(text, "config.json");
    RC_ASSERT(imported.job.has_value());
    RC_ASSERT(parse_job(job_text(*imported.job), "job.json") == *imported.job);
  } catch (const InputError& error) {
    RC_ASSERT(error.file() == "config.json");
    RC_ASSERT(!std::string(error.what()).empty());
  }
}

RC_GTEST_PROP(MutatedConfigs, BytesThatChangeAreReadOrRefused, ()) {
  std::string text = *rc::gen::elementOf(texts());
  const int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        text[at] = static_cast<char>(*rc::gen::inRange(0, 256));
        break;
      case 1:
        text.erase(at, *rc::gen::inRange<std::size_t>(1, 20));
        break;
      case 2:
        text.insert(
            at, *rc::gen::elementOf(std::vector<std::string>{"0", "-", "1e300", "null", "{", "]",
                                                             "\"", ",", "99999999999999999999"}));
        break;
      default:
        text.resize(at + 1);
    }
    if (text.empty()) text = "{";
  }
  read_or_refuse(text);
}

RC_GTEST_PROP(MutatedConfigs, ValuesThatChangeAreReadOrRefused, ()) {
  Json value = parse_json(*rc::gen::elementOf(texts()), "config.json");
  const Json values = parse_json(R"([null, true, false, 0, 1, -1, 3, 7, 64, 1073741824,
      9007199254740992, 0.5, -2.5, 1e300, "", "silu", "gelu", [], [1, 0], {}, {"rope_theta": "x"},
      {"type": 3}, {"rope_theta": {"a": 1}}])",
                                 "test");
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    auto member = value.begin();
    std::advance(member, *rc::gen::inRange<std::size_t>(0, value.size()));
    *member = values[*rc::gen::inRange<std::size_t>(0, values.size())];
  }
  read_or_refuse(value.dump());
}

}  // namespace
}  // namespace plimsoll
