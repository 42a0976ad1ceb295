// parse(print(x)) == x for Graphs and Programs of every preset, and errors that name their line.
#include "graph/text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "passes/pipeline.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> job_files() {
  std::vector<fs::path> files = {fs::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json"};
  for (const auto& entry :
       fs::directory_iterator(fs::path(PLIMSOLL_SOURCE_DIR) / "models/presets/jobs")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class TextForm : public testing::TestWithParam<fs::path> {};

TEST_P(TextForm, ParsesBackToTheSameGraphAndPrograms) {
  const Job job = read_job(GetParam());
  Strategy strategy;
  strategy.pp = 2;
  if (job.heads % 2 == 0 && !job.qk_norm_across_heads) strategy.mp = 2;
  strategy.sharding_degree = 2;
  strategy.sharding_stage = 1;
  strategy.dp = std::max<std::int64_t>(1, job.global_batch / 8);  // at most 4 micro-batches
  strategy.recompute = Recompute::full;
  const Graph forward = build_forward(job, strategy.micro_batch);
  EXPECT_EQ(parse_graph(print(forward), "forward"), forward);
  for (const Framework& framework : all_frameworks()) {
    if (!legal(framework, strategy)) continue;
    strategy.precision.fp8 =
        framework.can.precision.fp8.value.has(Fp8::rowwise) && job.precision != DType::f32
            ? Fp8::rowwise
            : Fp8::none;
    const PassContext context{job, strategy, framework};
    const Graph lowered = lower_graph(context);
    EXPECT_EQ(parse_graph(print(lowered), "lowered"), lowered) << framework.name;
    for (const Program& program : lower(context, {}, Proof::structure)) {
      const std::string text = print(program);
      const Program parsed = parse_program(text, "program");
      EXPECT_TRUE(parsed == program) << framework.name << " " << program.name;
      EXPECT_TRUE(print(parsed) == text) << framework.name << " " << program.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, TextForm, testing::ValuesIn(job_files()), [](const auto& path) {
  std::string name = path.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

std::string message_of(const std::string& text) {
  try {
    parse_graph(text, "file.txt");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TextForm, SharedPartsPartialGradientsAndCommentsParseBack) {
  const std::string text =
      "graph g\ngrid mp=4 cp=1 sharding=1 dp=1 pp=1 order=mp,cp,sharding,dp,pp\n"
      "block 0 layer layer x2\n"
      "tensor %0 keys f32[8,2] parameter block=0 split=1:mp:2:2 init=zeros "
      "gradient_group=mp:run2\n";
  const Graph graph = parse_graph("# a comment\n" + text, "shared");
  EXPECT_EQ(print(graph), text);
  EXPECT_EQ(graph.tensors[0].split, (Split{1, Axis::mp, 2, 2}));
  EXPECT_EQ(graph.tensors[0].gradient_group, (Group{{Axis::mp}, false, 2}));
  EXPECT_EQ(part_index(*graph.tensors[0].split, {3, 0, 0, 0, 0}), 1);
}

TEST(TextForm, ErrorsNameFileAndLine) {
  EXPECT_EQ(message_of("graph g\nblock 0 a layer y2\n"), "file.txt:2: expected xCOUNT, found 'y2'");
  EXPECT_EQ(message_of("graph g\ntensor %1 x f32[1] activation\n"),
            "file.txt:2: tensors are not in order");
  EXPECT_EQ(message_of("op fly forward () -> ()\n"), "file.txt:1: 'fly' is unknown here");
  EXPECT_EQ(message_of("op gelu forward (%0) -> (%1) wings=2\n"),
            "file.txt:1: unknown attribute 'wings'");
  EXPECT_EQ(message_of("op gelu forward (%0"),
            "file.txt:1: expected ')', found the end of the line");
}

TEST(TextForm, EveryOpKindHasARowAndAName) {
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    EXPECT_EQ(op_kind_from(to_text(OpKind(i))), OpKind(i));
  }
}

}  // namespace
}  // namespace plimsoll
