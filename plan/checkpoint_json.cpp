// checkpoint.json is read and written here.
#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "models/kinds/file_kind.h"
#include "plan/checkpoint.h"
#include "plan/json_layout.h"
#include "plan/prediction_json.h"
#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

constexpr std::size_t kDigits = 16;  ///< of a checksum
/// The scalars of a step are f32, which counts exactly so far.
constexpr std::int64_t kMostCount = std::int64_t{1} << 24;
constexpr std::size_t kMostDims = 16;

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::uint64_t checksum_from(JsonObject& entry, const std::string& text) {
  std::uint64_t checksum = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, checksum, 16);
  if (text.size() != kDigits || stop != end || error != std::errc() ||
      text != checksum_text(checksum))
    entry.fail("checksums", "texts of 16 lower-case hexadecimal digits are required");
  return checksum;
}

CheckpointTensor tensor_from(JsonObject& entry, std::size_t most_checksums) {
  CheckpointTensor tensor;
  tensor.name = entry.text("name");
  if (tensor.name.empty()) entry.fail("name", "a name is required");
  tensor.shape = entry.integers("shape", 1, kMostJsonInteger);
  if (tensor.shape.size() > kMostDims)
    entry.fail("shape", fmt::format("at most {} dimensions are allowed", kMostDims));
  for (const std::string& text : entry.texts("checksums"))
    tensor.checksums.push_back(checksum_from(entry, text));
  if (tensor.checksums.empty() || tensor.checksums.size() > most_checksums) {
    entry.fail("checksums",
               fmt::format("one for each file is required, of which there are {}", most_checksums));
  }
  entry.finish();
  return tensor;
}

}  // namespace

const std::vector<std::string>& moment_names(std::size_t moments) {
  static const std::vector<std::string> names[] = {
      {}, {"momentum_buffer"}, {"exp_avg", "exp_avg_sq"}};
  return names[moments];
}

std::string checkpoint_text(const CheckpointRecord& record) {
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : record.tensors) {
    Json checksums = Json::array();
    for (const std::uint64_t one : tensor.checksums) checksums.push_back(checksum_text(one));
    tensors.push_back(
        {{"name", tensor.name}, {"shape", tensor.shape}, {"checksums", std::move(checksums)}});
  }
  Json json = {{"version", kCheckpointVersion},
               {"step", record.step},
               {"plan_digest", record.plan_digest},
               {"data_bytes", record.data_bytes},
               {"data_digest", record.data_digest},
               {"learning_rates", record.rates},
               {"updates", record.updates},
               {"loss_scale", record.loss_scale},
               {"good_steps", record.good_steps},
               {"skipped_steps", record.skipped_steps},
               {"overflowed", record.overflowed},
               {"moments", record.moments},
               {"job", parse_json(job_text(record.job), "job")},
               {"tensors", std::move(tensors)}};
  json["digest"] = digest(line_text(json));
  return line_text(json);
}

CheckpointRecord parse_checkpoint(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::checkpoint, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kCheckpointVersion) {
    object.fail("version", "this build reads version " + std::to_string(kCheckpointVersion));
  }
  CheckpointRecord record;
  record.step = object.integer("step", 1, kMostCount);
  record.plan_digest = object.text("plan_digest");
  record.data_bytes = object.integer("data_bytes", 1, kMostJsonInteger);
  record.data_digest = object.text("data_digest");
  record.rates = object.text("learning_rates");
  record.updates = object.integer("updates", 0, kMostCount);
  record.loss_scale = object.number("loss_scale", 0, std::numeric_limits<float>::max());
  record.good_steps = object.integer("good_steps", 0, kMostCount);
  record.skipped_steps = object.integer("skipped_steps", 0, kMostCount);
  record.overflowed = object.boolean("overflowed");
  record.moments = object.texts("moments");
  if (record.moments.size() > 2 || record.moments != moment_names(record.moments.size())) {
    object.fail("moments",
                "none, \"momentum_buffer\", or \"exp_avg\" and \"exp_avg_sq\" are required");
  }
  record.job = read_embedded(object, "job", parse_job);
  for (JsonObject& entry : object.objects("tensors"))
    record.tensors.push_back(tensor_from(entry, 1 + record.moments.size()));
  if (record.tensors.empty()) object.fail("tensors", "a tensor is required");
  const std::string stated = object.text("digest");
  object.finish();
  Json others = json;
  others.erase("digest");
  others.erase("$schema");
  if (stated != digest(line_text(others)))
    object.fail("digest", "the file was changed: that is not the digest of its other keys");
  return record;
}

}  // namespace plimsoll
