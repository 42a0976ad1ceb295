// checkpoint.json is read and written here.
#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "models/kinds/file_kind.h"
#include "plan/checkpoint.h"
#include "plan/json_forms.h"
#include "plan/json_layout.h"

namespace plimsoll {
namespace {

constexpr std::size_t kDigits = 16;  ///< of a checksum
/// The scalars of a step are f32, which counts exactly so far.
constexpr std::int64_t kMostCount = std::int64_t{1} << 24;
constexpr std::size_t kMostDims = 16;

std::string checksum_text(std::uint64_t checksum) { return fmt::format("{:016x}", checksum); }

Json checksums_json(const std::vector<std::uint64_t>& checksums) {
  Json json = Json::array();
  for (const std::uint64_t one : checksums) json.push_back(checksum_text(one));
  return json;
}

std::vector<std::uint64_t> checksums_from(JsonObject& tensor, std::string_view key) {
  std::vector<std::uint64_t> checksums;
  for (const std::string& text : tensor.texts(key)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, checksums.emplace_back(), 16);
    if (text.size() != kDigits || stop != end || error != std::errc() ||
        text != checksum_text(checksums.back()))
      tensor.fail(key, "texts of 16 lower-case hexadecimal digits are required");
  }
  return checksums;
}

/// Lists a tensor of a checkpoint of so many files.
auto tensor_of(std::size_t files) {
  return [=](auto& fields, auto& tensor) {
    fields.required("name", tensor.name);
    fields.check(!tensor.name.empty(), "name", "a name is required");
    fields.required("shape", tensor.shape, {1, kMostJsonInteger});
    fields.check(tensor.shape.size() <= kMostDims, "shape", "at most {} dimensions are allowed",
                 kMostDims);
    fields.required("checksums", tensor.checksums, Form{checksums_json, checksums_from});
    fields.check(!tensor.checksums.empty() && tensor.checksums.size() <= files, "checksums",
                 "one for each file is required, of which there are {}", files);
  };
}

/// Lists all but the digest.
constexpr auto kRecord = [](auto& fields, auto& record) {
  fields.version(kCheckpointVersion);
  fields.required("step", record.step, {1, kMostCount});
  fields.required("plan_digest", record.plan_digest);
  fields.required("data_bytes", record.data_bytes, {1, kMostJsonInteger});
  fields.required("data_digest", record.data_digest);
  fields.required("learning_rates", record.rates);
  fields.required("updates", record.updates, {0, kMostCount});
  fields.required("loss_scale", record.loss_scale, {0, std::numeric_limits<float>::max()});
  fields.required("good_steps", record.good_steps, {0, kMostCount});
  fields.required("skipped_steps", record.skipped_steps, {0, kMostCount});
  fields.required("overflowed", record.overflowed);
  fields.required("moments", record.moments);
  fields.required("job", record.job, embedded(job_text, parse_job));
  const std::size_t moments = record.moments.size();
  fields.check(moments <= 2 && record.moments == moment_names(moments), "moments",
               "none, \"momentum_buffer\", or \"exp_avg\" and \"exp_avg_sq\" are required");
  fields.required("tensors", record.tensors, tensor_of(1 + moments));
  fields.check(!record.tensors.empty(), "tensors", "a tensor is required");
};

}  // namespace

const std::vector<std::string>& moment_names(std::size_t moments) {
  static const std::vector<std::string> names[] = {
      {}, {"momentum_buffer"}, {"exp_avg", "exp_avg_sq"}};
  return names[moments];
}

std::string checkpoint_text(const CheckpointRecord& record) {
  Json json = listed_json(record, kRecord);
  json["digest"] = digest(line_text(json));
  return line_text(json);
}

CheckpointRecord parse_checkpoint(std::string_view text, const std::string& file) {
  const Json json = parse_file_of(FileKind::checkpoint, text, file);
  JsonObject object(json, file);
  CheckpointRecord record;
  read_listed(object, record, kRecord);
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
