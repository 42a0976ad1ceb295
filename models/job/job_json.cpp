// Job files are read under limits and written in canonical order.
#include <charconv>
#include <map>
#include <utility>

#include "base/file.h"
#include "models/job/job_fields.h"
#include "models/kinds/file_kind.h"
#include "models/presets/presets.h"

namespace plimsoll {

namespace {

/// Returns a length that stands for those that differ from it by at most 1/32, so that a job lists
/// some hundreds of them at most.
std::int64_t rounded_length(std::int64_t tokens) {
  std::int64_t step = 1;
  while (tokens / step >= 32) step *= 2;
  return std::min((tokens + step / 2) / step * step, kMostSequence);
}

/// Reads a file of lengths, one on each line, as a list of how often each occurs.
Json lengths_of_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::map<std::int64_t, std::int64_t> counts;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::int64_t tokens = 0;
    const char *first = text.data() + at, *last = text.data() + end;
    if (last > first && last[-1] == '\r') --last;
    const auto [stop, error] = std::from_chars(first, last, tokens);
    if (error != std::errc() || stop != last || tokens < 1 || tokens > kMostSequence)
      throw InputError(path.string(), fmt::format("line {}", line + 1),
                       fmt::format("found \"{}\"; a length from 1 to {} is required",
                                   printable(std::string_view(first, last), 30), kMostSequence));
    ++counts[rounded_length(tokens)];
    at = end + 1;
  }
  if (counts.empty()) throw InputError(path.string(), "line 1", "a length is required");
  Json list = Json::array();
  for (const auto& [tokens, count] : counts) list.push_back({{"tokens", tokens}, {"share", count}});
  return list;
}

}  // namespace

Job parse_job(std::string_view text, const std::string& file) {
  Json value = parse_file_of(FileKind::job, text, file);
  if (const auto lengths = value.find("lengths"); lengths != value.end() && lengths->is_string())
    *lengths =
        lengths_of_file(std::filesystem::path(file).parent_path() / lengths->get<std::string>());
  const JsonObject fields(value, file);
  if (const auto lengths = value.find("lengths");
      lengths != value.end() && lengths->is_array() && lengths->empty())
    fields.fail("lengths", "a length is required");
  Job job = read_listed<Job>(fields, job_fields::kJob);
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
