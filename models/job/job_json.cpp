// Job files are read under limits and written in canonical order.
#include <utility>

#include "models/job/job_fields.h"
#include "models/kinds/file_kind.h"
#include "models/presets/presets.h"

namespace plimsoll {

Job parse_job(std::string_view text, const std::string& file) {
  const Json value = parse_file_of(FileKind::job, text, file);
  Job job = read_listed<Job>(JsonObject(value, file), job_fields::kJob);
  // The width that heads have anyway is not stated again.
  if (job.head_size * job.heads == job.hidden) job.head_size = 0;
  if (const auto stated = std::exchange(job.norm_epsilon, std::nullopt); stated != epsilon_of(job))
    job.norm_epsilon = stated;
  if (job.experts && job.experts->ffn_hidden == 0) job.experts->ffn_hidden = job.ffn_hidden;
  if (!job.loss_scale && job.precision == DType::f16) job.loss_scale = LossScale{};
  check_job(job, file);
  return job;
}

Job read_job(const std::filesystem::path& path) {
  return parse_job(read_file_or_preset(path.string(), job_presets()), path.string());
}

std::string job_text(const Job& job) { return json_text(listed_json(job, job_fields::kJob)); }

}  // namespace plimsoll
