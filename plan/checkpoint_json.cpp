// checkpoint.json is read and written here.
#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "models/kinds/file_kind.h"
#include "plan/checkpoint.h"
#include "plan/json_fields.h"
#include "plan/json_layout.h"

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

/// Lists the fields but for the tensors and the digest.
void list_fields(Fields& io, CheckpointRecord& record) {
  io("step", record.step, 1, kMostCount);
  io("plan_digest", record.plan_digest);
  io("data_bytes", record.data_bytes, 1);
  io("data_digest", record.data_digest);
  io("learning_rates", record.rates);
  io("updates", record.updates, 0, kMostCount);
  io.number("loss_scale", record.loss_scale, 0., double(std::numeric_limits<float>::max()));
  io("good_steps", record.good_steps, 0, kMostCount);
  io("skipped_steps", record.skipped_steps, 0, kMostCount);
  io("overflowed", record.overflowed);
  io("moments", record.moments);
  io.as_text("job", record.job, job_text, parse_job);
}

std::string checkpoint_text(const CheckpointRecord& record) {
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : record.tensors) {
    Json checksums = Json::array();
    for (const std::uint64_t one : tensor.checksums) checksums.push_back(checksum_text(one));
    tensors.push_back(
        {{"name", tensor.name}, {"shape", tensor.shape}, {"checksums", std::move(checksums)}});
  }
  Json json = fields_json(record, {{"version", kCheckpointVersion}});
  json["tensors"] = std::move(tensors);
  json["digest"] = digest(line_text(json));
  return line_text(json);
}

CheckpointRecord parse_checkpoint(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::checkpoint, text, file);
  JsonObject object(json, file);
  if (object.integer("version", 0, kMostJsonInteger) != kCheckpointVersion) {
    object.fail("version", "this build reads version " + std::to_string(kCheckpointVersion));
  }
  Fields io(std::move(object));
  CheckpointRecord record;
  list_fields(io, record);
  object = std::move(*io.from);
  if (record.moments.size() > 2 || record.moments != moment_names(record.moments.size())) {
    object.fail("moments",
                "none, \"momentum_buffer\", or \"exp_avg\" and \"exp_avg_sq\" are required");
  }
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
