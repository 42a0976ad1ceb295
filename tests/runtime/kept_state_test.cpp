// Tensors of a kept state are named by the model's own layer number, whatever the layers' kinds.
#include "runtime/state/kept_state.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "runtime/checkpoint/saved.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

/// Returns what stands before the name within a layer: "full_layer.5".
std::set<std::string> layers_of(const Job& job, const std::string& strategy = "") {
  std::set<std::string> layers;
  for (const WholeTensor& one : whole_tensors(nano_programs(nano_strategy(strategy, 2, {}), job))) {
    const std::string name = one.name.substr(0, one.name.find('.', one.name.find('.') + 1));
    if (name != "embedding.0" && name != "head.0") layers.insert(name);
  }
  return layers;
}

/// Layers with a window, but for every sixth.
Job windowed_job(std::int64_t layers) {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.layers = layers;
  job.window = job.sequence / 2;
  job.window_pattern = {true, true, true, true, true, false};
  return job;
}

TEST(KeptState, LayersHaveTheModelsOwnNumbers) {
  const std::set<std::string> six = {"windowed_layer.0", "windowed_layer.1", "windowed_layer.2",
                                     "windowed_layer.3", "windowed_layer.4", "full_layer.5"};
  EXPECT_EQ(layers_of(windowed_job(6)), six);
  std::set<std::string> seven = six;
  seven.insert("windowed_layer.6");
  EXPECT_EQ(layers_of(windowed_job(7)), seven);
  EXPECT_EQ(layers_of(windowed_job(6), "pp=2"), six);
  EXPECT_EQ(layers_of(windowed_job(6), "pp=2,virtual_stages=3"), six);

  Job experts = read_job(tests_folder() / "llama-nano.json");
  experts.layers = 4;
  experts.experts.emplace();
  experts.experts->count = 4;
  experts.experts->chosen = 2;
  experts.experts->ffn_hidden = 24;
  experts.experts->dense_layers = 1;
  experts.mtp = MultiToken{1, 0.5};
  const std::set<std::string> mixed = {"layer.0", "expert_layer.1", "expert_layer.2",
                                       "expert_layer.3", "mtp1.4"};
  EXPECT_EQ(layers_of(experts), mixed);
  EXPECT_EQ(layers_of(experts, "pp=2"), mixed);
}

// A checkpoint of the numbers within a block, which builds had before, is not taken for this one.
TEST(KeptState, OtherNumbersAreRefused) {
  const Job job = windowed_job(6);
  const std::vector<Program> programs = nano_programs(nano_strategy("", 2, {}), job);
  std::vector<Program> counted = programs;
  for (Program& program : counted) {
    for (Segment& segment : program.segments)
      if (segment.parameter.starts_with("full_layer.")) segment.layer = 0;
  }
  const ScratchFolder scratch;
  TrainOptions options = some_steps(1);
  options.save = save_in(scratch.path(), job);
  train_nano(programs, options, job);
  const SavedCheckpoint saved(scratch.path());
  EXPECT_NO_THROW(saved.check_tensors(programs));
  try {
    saved.check_tensors(counted);
    FAIL() << "the names differ";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("full_layer.0."), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace plimsoll
