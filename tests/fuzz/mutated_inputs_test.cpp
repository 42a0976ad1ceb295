// Texts near valid ones, through every entry point: they are read, or refused in words.
//
// PLIMSOLL_FUZZ=FIRST:COUNT reads COUNT texts of each entry point, from the FIRST on, instead of
// the fixed subset, and prints a line of figures for each (lab/soak).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <iostream>
#include <random>

#include "base/file.h"
#include "tests/draws.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/mutation.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kUsualCount = 150;

double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t(usage.ru_maxrss) * 1024;
}

/// A folder with a plan and with what a run by it measured.
class MadeExamples {
 public:
  MadeExamples() : folder_(std::filesystem::path(testing::TempDir()) / "made-examples") {
    std::filesystem::create_directories(folder_);
    const std::string source = PLIMSOLL_SOURCE_DIR, programs = PLIMSOLL_BIN_DIR;
    run(
        fmt::format("{}/planner plan {}/tests/gpt-nano.json --cluster "
                    "{}/tests/fuzz/examples/cpu-cluster.json --devices 2 -o {} --json",
                    programs, source, source, file("plan")));
    run(fmt::format("{}/planner-run {} --data {}/README.md --steps 4 -o {} --json", programs,
                    file("plan"), source, file("measured")));
  }
  std::string file(std::string_view entry) const {
    return (folder_ / fmt::format("{}.json", entry)).string();
  }
  bool has(std::string_view entry) const { return std::filesystem::exists(file(entry)); }

 private:
  static void run(const std::string& command) {
    if (std::system((command + " > /dev/null 2>&1").c_str()) != 0) ADD_FAILURE() << command;
  }
  std::filesystem::path folder_;
};

/// The texts of an entry point's examples.
std::vector<std::string> examples_of(const EntryPoint& entry) {
  static const MadeExamples made;
  std::vector<std::string> texts;
  for (const auto& path : example_files(entry, PLIMSOLL_SOURCE_DIR))
    texts.push_back(read_file(path));
  if (made.has(entry.name)) texts.push_back(read_file(made.file(entry.name)));
  return texts;
}

class MutatedInputs : public testing::TestWithParam<std::size_t> {};

TEST_P(MutatedInputs, AreReadOrRefusedInWords) {
  const EntryPoint& entry = entry_points()[GetParam()];
  const std::vector<std::string> examples = examples_of(entry);
  ASSERT_FALSE(examples.empty()) << entry.name;
  std::int64_t taken_examples = 0;
  for (const std::string& text : examples) taken_examples += takes(entry, text);
  EXPECT_GT(taken_examples, 0) << "no example of " << entry.name << " is valid";

  const Draws draws = wanted_draws({.count = kUsualCount}, "PLIMSOLL_FUZZ");
  // A text that ends the process stays in this file.
  const std::string running =
      fmt::format("{}{}-running-from-{}", testing::TempDir(), entry.name, draws.first);
  std::int64_t taken = 0;
  double slowest = 0;
  for (std::int64_t draw = draws.first; draw < draws.first + draws.count; ++draw) {
    std::mt19937_64 random(std::uint64_t(draw) * entry_points().size() + GetParam());
    const std::string text = mutated(examples[std::size_t(draw) % examples.size()], random);
    std::ofstream(running, std::ios::binary) << text;
    const double begin = cpu_seconds();
    try {
      taken += takes(entry, text);
    } catch (const std::exception& error) {
      const std::string kept = fmt::format("{}{}-{}", testing::TempDir(), entry.name, draw);
      std::ofstream(kept, std::ios::binary) << text;
      ADD_FAILURE() << "draw " << draw << ", kept as " << kept << ": " << error.what();
    }
    slowest = std::max(slowest, cpu_seconds() - begin);
  }
  std::filesystem::remove(running);
  // A few texts of a draw that is repeated may all be valid.
  if (!draws.from_outside) {
    EXPECT_LT(taken, draws.count) << "mutations of " << entry.name << " change nothing";
  }
  if (draws.from_outside) {
    std::cout << fmt::format(
                     R"({{"entry": "{}", "inputs": {}, "taken": {}, "slowest_cpu_s": {:.3f}, )"
                     R"("peak_bytes": {}}})",
                     entry.name, draws.count, taken, slowest, peak_bytes())
              << std::endl;
  }
}

INSTANTIATE_TEST_SUITE_P(EntryPoints, MutatedInputs,
                         testing::Range<std::size_t>(0, entry_points().size()),
                         [](const testing::TestParamInfo<std::size_t>& one) {
                           return std::string(entry_points()[one.param].name);
                         });

TEST(Mutation, SameStateGivesTheSameText) {
  std::mt19937_64 one(7), same(7), other(8);
  const std::string text = R"({"a": [1, 2, {"b": "text"}], "c": 2.5})";
  std::string first, again, different;
  for (int i = 0; i < 20; ++i) {
    first += mutated(text, one);
    again += mutated(text, same);
    different += mutated(text, other);
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, different);
}

}  // namespace
}  // namespace plimsoll
