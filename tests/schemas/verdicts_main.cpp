// Started by tests/scripts/schemas_test.py: says of many documents whether the readers of files
// accept them, so that schemas can be held against the readers.
//
// Reads lines of "KIND<tab>JSON" from stdin, and writes a line for each: "ok", or why it is
// refused.
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "models/calibration/calibration_file.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework_json.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "plan/checkpoint.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "published/goals.h"
#include "published/published_run.h"

namespace plimsoll {
namespace {

using Read = std::function<void(const std::string&)>;

const std::map<std::string, Read>& readers() {
  static const std::map<std::string, Read> all = {
      {"job", [](const std::string& text) { parse_job(text, "file"); }},
      {"cluster", [](const std::string& text) { parse_cluster(text, "file"); }},
      {"framework",
       [](const std::string& text) {
         if (!parse_framework(text, "file", all_frameworks()))
           throw InputError("file", "/based_on", "no built-in framework");
       }},
      {"strategy", [](const std::string& text) { strategy_from_json_text(text, "file"); }},
      {"calibration", [](const std::string& text) { parse_calibration_file(text, "file"); }},
      {"plan", [](const std::string& text) { parse_plan(text, "file"); }},
      {"checkpoint", [](const std::string& text) { parse_checkpoint(text, "file"); }},
      {"measured", [](const std::string& text) { parse_measured(text, "file"); }},
      {"goals", [](const std::string& text) { parse_goals(text, "file"); }},
      {"published-runs", [](const std::string& text) { parse_published_runs(text, "file"); }},
  };
  return all;
}

std::string verdict(const std::string& line) {
  const std::size_t tab = line.find('\t');
  const auto reader = readers().find(line.substr(0, tab));
  if (tab == line.npos || reader == readers().end()) return "no such kind of file";
  try {
    reader->second(line.substr(tab + 1));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "ok";
}

}  // namespace
}  // namespace plimsoll

int main() {
  std::string line;
  while (std::getline(std::cin, line)) std::puts(plimsoll::verdict(line).c_str());
  return 0;
}
