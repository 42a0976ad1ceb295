// Golden texts: each file under tests/golden/passes holds a pass, the fields of the strategy it is
// run with, a graph, and the graph it must become. PLIMSOLL_UPDATE_GOLDEN=1 rewrites the outputs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/text.h"
#include "graph/verify/verify.h"
#include "passes/cut/cut_blocks.h"
#include "passes/layout/arena_layout.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct Golden {
  std::string comment, job, pass, strategy, framework, precision, fp32, changed, input, output;
};

Golden read_golden(const fs::path& path) {
  std::ifstream file(path);
  Golden golden;
  std::string line, *section = nullptr;
  while (std::getline(file, line)) {
    if (section == &golden.input && line == "== output") {
      section = &golden.output;
    } else if (section != nullptr) {
      *section += line + "\n";
    } else if (line == "== input") {
      section = &golden.input;
    } else {
      const std::size_t space = std::min(line.find(' '), line.size());
      const std::string key = line.substr(0, space),
                        value = line.substr(std::min(space + 1, line.size()));
      if (key == "#") golden.comment = value;
      if (key == "job") golden.job = value;
      if (key == "pass") golden.pass = value;
      if (key == "strategy") golden.strategy = value;
      if (key == "framework") golden.framework = value;
      if (key == "precision") golden.precision = value;
      if (key == "fp32") golden.fp32 = value;
      if (key == "changed") golden.changed = value;
    }
  }
  return golden;
}

void write_golden(const fs::path& path, const Golden& golden) {
  std::ofstream(path) << "# " << golden.comment << "\n"
                      << (golden.job.empty() ? "" : "job " + golden.job + "\n") << "pass "
                      << golden.pass << "\nstrategy " << golden.strategy << "\n"
                      << (golden.framework.empty() ? "" : "framework " + golden.framework + "\n")
                      << (golden.precision.empty() ? "" : "precision " + golden.precision + "\n")
                      << (golden.fp32.empty() ? "" : "fp32 " + golden.fp32 + "\n") << "changed "
                      << golden.changed << "\n== input\n"
                      << golden.input << "== output\n"
                      << golden.output;
}

class PassGolden : public testing::TestWithParam<std::string> {};

TEST_P(PassGolden, RewritesInputToOutput) {
  const fs::path path = fs::path(PLIMSOLL_SOURCE_DIR) / "tests/golden/passes" / GetParam();
  const Golden golden = read_golden(path);
  const std::string name = golden.job.empty() ? "gpt-nano" : golden.job;
  Job job = read_job(fs::path(PLIMSOLL_SOURCE_DIR) / "tests" / (name + ".json"));
  if (golden.precision == "bf16") job.precision = DType::bf16;
  if (!golden.fp32.empty()) job.fp32_parameters = {golden.fp32};
  const Strategy strategy = parse_strategy(golden.strategy);
  Framework framework = bundled_framework();
  if (golden.framework == "separate_bias") {
    framework.kernels.bias.in_matmul = false;
  } else if (golden.framework == "separate_qkv") {
    framework.kernels.attention.separate_qkv = true;
  } else if (golden.framework == "repeats_all") {
    framework.parallelism.recompute_repeats_all = true;
  } else if (!golden.framework.empty()) {
    framework = framework_by_name(golden.framework);
  }

  Graph graph = parse_graph(golden.input, path.string());
  const Verdict before = verify(graph);
  ASSERT_TRUE(before) << before.reason();
  if (golden.pass == "cut_blocks") {
    const std::string text = print(cut_blocks(graph, 16, cut_choices(strategy)));
    if (std::getenv("PLIMSOLL_UPDATE_GOLDEN") != nullptr) {
      Golden updated = golden;
      updated.output = text;
      return write_golden(path, updated);
    }
    EXPECT_EQ(text, golden.output);
    return;
  }
  bool found = false, changed = false;
  for (const GraphPass& pass : graph_passes()) {
    if (pass.name != golden.pass) continue;
    found = true;
    changed = pass.run(graph, {job, strategy, framework});
  }
  ASSERT_TRUE(found) << golden.pass;
  const Verdict after = verify(graph);
  EXPECT_TRUE(after) << after.reason();

  if (std::getenv("PLIMSOLL_UPDATE_GOLDEN") != nullptr) {
    Golden updated = golden;
    updated.changed = changed ? "true" : "false";
    updated.output = print(graph);
    write_golden(path, updated);
    return;
  }
  EXPECT_EQ(changed ? "true" : "false", golden.changed);
  EXPECT_EQ(print(graph), golden.output);
  EXPECT_EQ(changed, golden.input != golden.output)
      << "the pass must say whether it changed the graph";
}

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry :
       fs::directory_iterator(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/golden/passes")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, PassGolden, testing::ValuesIn(golden_files()),
                         [](const auto& name) {
                           std::string text = name.param.substr(0, name.param.find('.'));
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

TEST(PassGolden, EveryPassHasACaseThatFiresAndOneThatDoesNot) {
  for (const GraphPass& pass : graph_passes()) {
    bool fires = false, rests = false;
    for (const std::string& name : golden_files()) {
      const Golden golden =
          read_golden(fs::path(PLIMSOLL_SOURCE_DIR) / "tests/golden/passes" / name);
      if (golden.pass != pass.name) continue;
      (golden.changed == "true" ? fires : rests) = true;
    }
    EXPECT_TRUE(fires) << pass.name;
    EXPECT_TRUE(rests) << pass.name;
  }
}

}  // namespace
}  // namespace plimsoll
