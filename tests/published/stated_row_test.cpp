// Stated rows: what rows and the rules of lab/ state of a run.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

TEST(StatedRow, ARowsOwnStatementsCount) {
  Json row = plain_row();
  row["stated"]["framework"] = "torchtitan";
  EXPECT_EQ(run_of(row).framework->name, "torchtitan");
  EXPECT_EQ(run_of(plain_row()).framework->name, "megatron-lm-2021");
  row["stated"]["framework"] = "ours";
  EXPECT_THROW(run_of(row), InputError);
  row = plain_row();
  row["stated"]["cluster"] = "ours";
  EXPECT_THROW(run_of(row), InputError);
  row = plain_row();
  row["stated"]["framewerk"] = "torchtitan";
  EXPECT_THROW(run_of(row), InputError);
}

TEST(StatedRow, IsReadAgainAsItIs) {
  Json row = plain_row();
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_405b_l4");
  const Json once = stated(row);
  EXPECT_EQ(once, stated(once));
  EXPECT_EQ(once["model"]["vocab"], 50258) << "one more, and not two";
}

TEST(StatedRow, DocumentsCountInsteadOfWhatARowSays) {
  Json row = plain_row();
  row["model"]["kv_heads"] = 8;
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_405b_l4");
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.kv_heads, 16);
  EXPECT_EQ(run.vocab, 50258);
  EXPECT_EQ(run.framework->memory.loss, LossMemory::own_type);
  EXPECT_EQ(run.framework->memory.process.workspace, Bytes((2 * 8320) << 10));
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_70b_l12");
  EXPECT_EQ(run_of(row).kv_heads, 8);
  EXPECT_EQ(run_of(row).framework->memory.loss, LossMemory::own_type);
  set_source(row, "github:somebody/SimuMax", "summary.json case llama3_405b_l4");
  EXPECT_EQ(run_of(row).kv_heads, 8);
  EXPECT_EQ(run_of(row).vocab, 50257);
  EXPECT_NE(run_of(row).framework->memory.loss, LossMemory::own_type);
}

TEST(StatedRow, DocumentsSayWhatAModelHasNot) {
  Json row = plain_row();
  row["recompute"] = "unknown";
  set_source(row, "github:eth-easl/sailor@cf2c8e3", "validation/clariden/OPT-350/N1/plan.json");
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.dropout, 0);
  EXPECT_EQ(run.tied_embeddings, false);
  EXPECT_EQ(run.recompute, StatedRecompute::none);
}

}  // namespace
}  // namespace plimsoll
