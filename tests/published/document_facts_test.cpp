// Facts that documents of published runs say beside their tables.
#include "published/document_facts.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

PublishedRun row(const std::string& source) {
  PublishedRun run;
  run.source = source;
  run.kv_heads = 8;
  run.vocab = 128256;
  return run;
}

TEST(DocumentFacts, CountInsteadOfWhatARowSays) {
  PublishedRun run = row("github:MooreThreads/SimuMax@4dcaae5, summary.json case llama3_405b_l4");
  apply_document_facts(run);
  EXPECT_EQ(run.kv_heads, 16);
  EXPECT_EQ(run.vocab, 128257);
  EXPECT_EQ(run.loss_memory, LossMemory::own_type);
  EXPECT_EQ(run.handle_workspace, Bytes(8320 << 10));
}

TEST(DocumentFacts, SayWhatAModelHasNot) {
  PublishedRun run =
      row("github:eth-easl/sailor@cf2c8e3, validation/clariden/OPT-350/N1/plan.json");
  run.recompute = "unknown";
  apply_document_facts(run);
  EXPECT_EQ(run.dropout, 0);
  EXPECT_EQ(run.tied_embeddings, false);
  EXPECT_EQ(run.recompute, "none");
}

TEST(DocumentFacts, HoldForTheirPlaceAlone) {
  PublishedRun other = row("github:MooreThreads/SimuMax@4dcaae5, summary.json case llama3_70b_l12");
  apply_document_facts(other);
  EXPECT_EQ(other.kv_heads, 8);
  EXPECT_EQ(other.loss_memory, LossMemory::own_type);
  PublishedRun unknown = row("github:somebody/SimuMax, summary.json case llama3_405b_l4");
  apply_document_facts(unknown);
  EXPECT_EQ(unknown.kv_heads, 8);
  EXPECT_EQ(unknown.vocab, 128256);
  EXPECT_FALSE(unknown.loss_memory);
}

}  // namespace
}  // namespace plimsoll
