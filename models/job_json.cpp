// Job files: reading under limits, writing in canonical order, and the rules inside a job.
#include <fmt/format.h>

#include <array>

#include "base/file.h"
#include "base/json.h"
#include "models/job.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 1> kFamilies = {"gpt"};
constexpr std::array<std::string_view, 1> kOptimizers = {"adamw"};
constexpr std::array<std::string_view, 3> kPrecisions = {"fp32", "bf16", "fp16"};
constexpr std::array<DType, 3> kPrecisionTypes = {DType::f32, DType::bf16, DType::f16};

// Largest values of each size (docs/formats.md); with the two totals below, every
// byte count derived from a job stays within 63 bits.
constexpr std::int64_t kMostLayers = 100'000;
constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMostFfn = std::int64_t{1} << 22;
constexpr std::int64_t kMostVocab = std::int64_t{1} << 24;
constexpr std::int64_t kMostSequence = std::int64_t{1} << 27;
constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;
constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;
constexpr double kMostParameters = 0x1p50;
constexpr double kMostActivations = 0x1p54;

[[noreturn]] void refuse(const std::string& file, const char* pointer, const std::string& message) {
  throw InputError(file, pointer, message);
}

struct SizeRule {
  const char* pointer;
  std::int64_t value, least, most;
};

void check_sizes(const Job& job, const std::string& file) {
  const SizeRule rules[] = {
      {"/layers", job.layers, 1, kMostLayers},
      {"/hidden", job.hidden, 1, kMostHidden},
      {"/heads", job.heads, 1, kMostHeads},
      {"/kv_heads", job.kv_heads, 1, kMostHeads},
      {"/ffn_hidden", job.ffn_hidden, 1, kMostFfn},
      {"/vocab", job.vocab, 2, kMostVocab},
      {"/sequence", job.sequence, 1, kMostSequence},
      {"/global_batch", job.global_batch, 1, kMostBatch},
      {"/seed", job.seed, 0, kMostSeed},
  };
  for (const SizeRule& rule : rules) {
    if (rule.value < rule.least || rule.value > rule.most) {
      refuse(file, rule.pointer,
             fmt::format("found {}; an integer from {} to {} is required", rule.value, rule.least,
                         rule.most));
    }
  }
}

/// Sizes that are fine one by one can still overflow byte counts together.
void check_totals(const Job& job, const std::string& file) {
  const double hidden = static_cast<double>(job.hidden), ffn = static_cast<double>(job.ffn_hidden);
  const double layers = static_cast<double>(job.layers), vocab = static_cast<double>(job.vocab);
  const double sequence = static_cast<double>(job.sequence);
  const double tokens = sequence * static_cast<double>(job.global_batch);
  const double parameters =
      layers * (4 * hidden * hidden + 2 * hidden * ffn) + hidden * (2 * vocab + sequence);
  if (parameters > kMostParameters) {
    refuse(file, "",
           fmt::format("a job of {:.3g} parameters; at most 2^50 are supported", parameters));
  }
  const double per_layer = static_cast<double>(job.heads) * sequence + 16 * hidden + 2 * ffn;
  const double activations = tokens * (layers * per_layer + vocab);
  if (activations > kMostActivations) {
    refuse(file, "",
           fmt::format("a step of {:.3g} activation elements; at most 2^54 are supported",
                       activations));
  }
}

void check_optimizer(const Job& job, const std::string& file) {
  const Optimizer& optimizer = job.optimizer;
  const auto within = [&](const char* key, double value, double least, double most) {
    if (value >= least && value <= most) return;
    refuse(file, key,
           fmt::format("found {}; a number from {} to {} is required", value, least, most));
  };
  within("/optimizer/learning_rate", optimizer.learning_rate, 0, 1e3);
  within("/optimizer/beta1", optimizer.beta1, 0, 1);
  within("/optimizer/beta2", optimizer.beta2, 0, 1);
  if (optimizer.beta1 == 1) refuse(file, "/optimizer/beta1", "must be less than 1");
  if (optimizer.beta2 == 1) refuse(file, "/optimizer/beta2", "must be less than 1");
  within("/optimizer/epsilon", optimizer.epsilon, 0, 1);
  within("/optimizer/weight_decay", optimizer.weight_decay, 0, 1e3);
  within("/clip_norm", job.clip_norm, 0, 1e9);
}

Optimizer optimizer_from(JsonObject object) {
  Optimizer optimizer;
  if (object.has("kind")) {
    optimizer.kind = static_cast<OptimizerKind>(object.choice("kind", kOptimizers));
  }
  const auto number = [&](const char* key, double& value, double most) {
    if (object.has(key)) value = object.number(key, 0, most);
  };
  number("learning_rate", optimizer.learning_rate, 1e3);
  number("beta1", optimizer.beta1, 1);
  number("beta2", optimizer.beta2, 1);
  number("epsilon", optimizer.epsilon, 1);
  number("weight_decay", optimizer.weight_decay, 1e3);
  object.finish();
  return optimizer;
}

std::string_view precision_text(DType precision) {
  for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
    if (kPrecisionTypes[i] == precision) return kPrecisions[i];
  }
  INVARIANT(false, "a job computes in a floating-point type");
  return {};
}

}  // namespace

void check_job(const Job& job, const std::string& file) {
  if (job.name.empty()) refuse(file, "/name", "a job needs a name");
  check_sizes(job, file);
  check_totals(job, file);
  check_optimizer(job, file);
  if (job.hidden % job.heads != 0) {
    refuse(file, "/heads",
           fmt::format("found {} heads; they must divide hidden {}", job.heads, job.hidden));
  }
  if (job.kv_heads != job.heads) {
    refuse(file, "/kv_heads",
           fmt::format("found {}; family gpt needs kv_heads equal to heads ({}): grouped-query "
                       "attention belongs to the llama family, which is not supported yet",
                       job.kv_heads, job.heads));
  }
  // fp16 needs loss scaling and steps that are skipped, which no pass adds.
  if (job.precision != DType::f32 && job.precision != DType::bf16) {
    refuse(
        file, "/precision",
        fmt::format("found {}; \"fp32\" and \"bf16\" are supported: loss scaling is not there yet",
                    precision_text(job.precision)));
  }
  if (job.dropout != 0) {
    refuse(file, "/dropout",
           fmt::format("found {}; only 0 is supported: training with dropout is not there yet",
                       job.dropout));
  }
}

Job parse_job(std::string_view text, const std::string& file) {
  const Json value = parse_json(text, file);
  JsonObject object(value, file);
  Job job;
  job.name = object.text("name");
  job.family = static_cast<Family>(object.choice("family", kFamilies));
  job.layers = object.integer("layers", 1, kMostLayers);
  job.hidden = object.integer("hidden", 1, kMostHidden);
  job.heads = object.integer("heads", 1, kMostHeads);
  job.kv_heads = object.has("kv_heads") ? object.integer("kv_heads", 1, kMostHeads) : job.heads;
  job.ffn_hidden =
      object.has("ffn_hidden") ? object.integer("ffn_hidden", 1, kMostFfn) : 4 * job.hidden;
  job.vocab = object.integer("vocab", 2, kMostVocab);
  job.sequence = object.integer("sequence", 1, kMostSequence);
  job.tied_embeddings = object.boolean("tied_embeddings");
  job.global_batch = object.integer("global_batch", 1, kMostBatch);
  job.precision = kPrecisionTypes[object.choice("precision", kPrecisions)];
  if (object.has("optimizer")) job.optimizer = optimizer_from(object.object("optimizer"));
  if (object.has("clip_norm")) job.clip_norm = object.number("clip_norm", 0, 1e9);
  if (object.has("dropout")) job.dropout = object.number("dropout", 0, 1);
  if (object.has("seed")) job.seed = object.integer("seed", 0, kMostSeed);
  object.finish();
  check_job(job, file);
  return job;
}

Job read_job(const std::filesystem::path& path) {
  return parse_job(read_file(path), path.string());
}

std::string job_text(const Job& job) {
  const Optimizer& optimizer = job.optimizer;
  return json_text({{"name", job.name},
                    {"family", kFamilies[static_cast<std::size_t>(job.family)]},
                    {"layers", job.layers},
                    {"hidden", job.hidden},
                    {"heads", job.heads},
                    {"kv_heads", job.kv_heads},
                    {"ffn_hidden", job.ffn_hidden},
                    {"vocab", job.vocab},
                    {"sequence", job.sequence},
                    {"tied_embeddings", job.tied_embeddings},
                    {"global_batch", job.global_batch},
                    {"precision", precision_text(job.precision)},
                    {"optimizer",
                     {{"kind", kOptimizers[static_cast<std::size_t>(optimizer.kind)]},
                      {"learning_rate", optimizer.learning_rate},
                      {"beta1", optimizer.beta1},
                      {"beta2", optimizer.beta2},
                      {"epsilon", optimizer.epsilon},
                      {"weight_decay", optimizer.weight_decay}}},
                    {"clip_norm", job.clip_norm},
                    {"dropout", job.dropout},
                    {"seed", job.seed}});
}

}  // namespace plimsoll
