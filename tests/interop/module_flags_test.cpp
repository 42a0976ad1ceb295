// Modules that are recomputed as flags and settings: written and read again, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "interop/flags/flag_document.h"
#include "interop/flags/flag_table.h"
#include "interop/flags/framework_flags.h"
#include "interop/imports/imported.h"
#include "interop/imports/readers.h"
#include "models/job/job.h"

namespace plimsoll {
namespace {

FlagFields fields_with(const std::string& recompute, const char* job) {
  return fields_of(
      read_job(std::string(PLIMSOLL_SOURCE_DIR) + "/models/presets/jobs/" + job + ".json"),
      parse_strategy("sharding_degree=8,sharding_stage=1," + recompute),
      framework_by_name("megatron-lm"));
}

/// A script of eight ranks.
std::string recomputing_script(const std::string& recompute, const char* job = "deepseek-v3") {
  const FlagTable& table = *flag_table_for("megatron");
  std::string text = "torchrun --nproc_per_node 8 --nnodes 1 " + table.target->program;
  for (const auto& [row, words] : rows_of(table, fields_with(recompute, job))) {
    for (const std::string& word : words) text += " " + shell_word(word);
  }
  return text + "\n";
}

std::string replaced(std::string text, const std::string& part, const std::string& by) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
  return text.replace(text.find(part), part.size(), by);
}

std::string recompute_in(const std::string& script) {
  const Strategy strategy = *read_framework_script(script, "train.sh").strategy;
  return field_text(strategy, "recompute") + " " + field_text(strategy, "recompute_modules");
}

constexpr const char* kRecomputed =
    "recompute=modules,recompute_modules=norms+latent_up_projection+expert_activation";
constexpr const char* kWritten = "--recompute-modules layernorm moe_act mla_up_proj";

TEST(ModuleFlags, AreWrittenAndReadAgain) {
  const std::string script = recomputing_script(kRecomputed);
  EXPECT_NE(script.find(kWritten), std::string::npos) << script;
  EXPECT_NE(script.find("--recompute-granularity selective"), std::string::npos) << script;
  EXPECT_EQ(recompute_in(script), "modules norms+latent_up_projection+expert_activation");
  EXPECT_EQ(
      recompute_in(recomputing_script("recompute=modules,recompute_modules=norms+mlp+experts")),
      "modules norms+mlp+experts");
  EXPECT_EQ(recompute_in(recomputing_script("recompute=full")), "full none");
  EXPECT_EQ(recompute_in(recomputing_script("recompute=none")), "none none");
}

TEST(ModuleFlags, AttentionThatKeepsNoScoresIsLeftOut) {
  const std::string script = recomputing_script(kRecomputed);
  EXPECT_EQ(recompute_in(replaced(script, kWritten, "--recompute-modules mlp core_attn layernorm")),
            "modules norms+mlp");
  EXPECT_EQ(recompute_in(replaced(script, kWritten, "--recompute-modules core_attn")), "none none");
  EXPECT_EQ(recompute_in(replaced(script, kWritten, "")), "none none");
  const std::string short_form =
      replaced(script, "--recompute-granularity selective", "--recompute-activations");
  EXPECT_EQ(recompute_in(short_form), "modules norms+latent_up_projection+expert_activation");
}

TEST(ModuleFlags, APartBesideItsWholeIsRepeatedWithIt) {
  const std::string script = recomputing_script(kRecomputed);
  EXPECT_EQ(recompute_in(replaced(script, kWritten, "--recompute-modules moe moe_act layernorm")),
            "modules norms+experts");
}

TEST(ModuleFlags, UnknownModulesAndOtherGranularitiesAreRefused) {
  const std::string script = recomputing_script(kRecomputed);
  const std::string refused = "modules go with --recompute-granularity selective";
  for (const std::string& wrong :
       {replaced(script, kWritten, "--recompute-modules layernorm attention"),
        replaced(script, "--recompute-granularity selective", ""),
        replaced(script, "--recompute-granularity selective",
                 "--recompute-granularity full --recompute-method uniform "
                 "--recompute-num-layers 1")}) {
    try {
      read_framework_script(wrong, "train.sh");
      ADD_FAILURE() << wrong;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(refused), std::string::npos) << error.what();
    }
  }
}

TEST(ModuleFlags, FilesOfSettingsNameThemInAList) {
  const FlagTable& table = *flag_table_for("megatron-bridge");
  const std::string text = document_of(table, fields_with(kRecomputed, "deepseek-v3"), {});
  EXPECT_NE(text.find("mla_up_proj"), std::string::npos) << text;
  ImportGiven given;
  given.devices = 8;
  const Imported imported = import_text(text, "settings", given);
  ASSERT_TRUE(imported.strategy) << text;
  EXPECT_EQ(field_text(*imported.strategy, "recompute_modules"),
            "norms+latent_up_projection+expert_activation");
  EXPECT_EQ(imported.strategy->recompute, Recompute::modules);
}

}  // namespace
}  // namespace plimsoll
