// Forward FLOPs of public models, from their config.json files, equal a formula over their shapes.
//
// shapes.json has the sizes that the models' papers and released files state, one row for a file of
// data/. The formula is written here alone: 2 FLOPs for each weight of a matrix that computes a
// token, and 2 for each column of a query and of a value, and for each pair of positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "interop/imports/imported.h"
#include "models/job/job.h"

namespace plimsoll {
namespace {

const std::filesystem::path kHere = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/interop";

double size(const Json& row, const char* key) { return row.value(key, 0.0); }

/// Weights of one layer's attention. `latent` lists the ranks of queries (0: plain) and of keys
/// with values, and the columns of a head without rotary, with rotary, and of its value.
double attention_weights(const Json& row) {
  const double h = size(row, "hidden"), n = size(row, "heads");
  if (!row.contains("latent")) {
    const double d = size(row, "head");
    return 2 * h * n * d + 2 * h * size(row, "kv_heads") * d;
  }
  const auto at = [&](int i) { return row.at("latent").at(i).get<double>(); };
  const double key = at(2) + at(3);
  const double queries = at(0) > 0 ? h * at(0) + at(0) * n * key : h * n * key;
  return queries + h * (at(1) + at(3)) + at(1) * n * (at(2) + at(4)) + n * at(4) * h;
}

/// Weights of matrices that compute one token, in all layers and the output table.
double weights(const Json& row) {
  const double h = size(row, "hidden"), matrices = size(row, "mlp_matrices");
  double dense = size(row, "layers"), with_experts = 0, of_experts = 0;
  if (row.contains("experts")) {
    const Json& experts = row.at("experts");
    with_experts = dense - size(experts, "dense_layers");
    dense -= with_experts;
    const double computed = size(experts, "chosen") + size(experts, "shared");
    of_experts = h * size(experts, "count") + computed * matrices * h * size(experts, "ffn");
  }
  return size(row, "layers") * attention_weights(row) + dense * matrices * h * size(row, "ffn") +
         with_experts * of_experts + h * size(row, "vocab");
}

/// Pairs of a query and a key at or before it that the layer's window leaves, counted one by one,
/// over the pairs that there are without a window.
double share_of_pairs(const Json& row) {
  const std::int64_t s = row.at("sequence"), w = row.at("window");
  std::int64_t pairs = 0;
  for (std::int64_t query = 0; query < s; ++query)
    pairs += row.contains("chunks") ? query % w + 1 : std::min(query + 1, w);
  return double(pairs) / (double(s) * double(s + 1) / 2);
}

double forward_flops(const Json& row) {
  const double s = size(row, "sequence"), windowed = size(row, "windowed_layers");
  double columns = 2 * size(row, "head");
  if (row.contains("latent")) {
    columns = 0;
    for (int i = 2; i < 5; ++i) columns += row.at("latent").at(i).get<double>();
  }
  const double whole = 2 * s * s * size(row, "heads") * columns;
  double layers = size(row, "layers") - windowed;
  if (windowed > 0) layers += windowed * share_of_pairs(row);
  return 2 * s * weights(row) + layers * whole;
}

TEST(ModelFlops, AreThoseOfTheShapes) {
  const Json rows = read_json(kHere / "shapes.json");
  EXPECT_GE(rows.size(), 50u);
  for (const Json& row : rows) {
    const std::string file = row.at("file");
    SCOPED_TRACE(file);
    ImportGiven given;
    given.sequence = row.at("sequence");
    Job job = *import_file(kHere / "data" / file, given).job;
    job.mtp.reset();  // the formula is of the model without its MTP modules
    EXPECT_DOUBLE_EQ(forward_matmul_flops_per_sequence(job).value(), forward_flops(row));
  }
}

/// DeepSeek-V3's module: a layer with experts, a product of 2 h by h, and the output table again.
TEST(ModelFlops, OfMtpModulesAddALayerAProductAndTheHead) {
  int compared = 0;
  for (const Json& row : read_json(kHere / "shapes.json")) {
    if (row.at("file") != "deepseek-v3.json") continue;
    ++compared;
    ImportGiven given;
    given.sequence = row.at("sequence");
    const Job job = *import_file(kHere / "data/deepseek-v3.json", given).job;
    ASSERT_TRUE(job.mtp);
    const double depths = double(job.mtp->depths), s = size(row, "sequence"),
                 h = size(row, "hidden");
    Json deeper = row;
    deeper["layers"] = size(row, "layers") + depths;
    const double head_and_product = 2 * s * (h * size(row, "vocab") + 2 * h * h);
    EXPECT_DOUBLE_EQ(forward_matmul_flops_per_sequence(job).value(),
                     forward_flops(deeper) + depths * head_and_product);
  }
  EXPECT_EQ(compared, 1);
}

}  // namespace
}  // namespace plimsoll
