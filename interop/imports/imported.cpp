// The kinds of files that can be imported are listed here, and a file is given to its reader.
#include "interop/imports/imported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "graph/graph.h"
#include "interop/imports/flag_import.h"
#include "interop/imports/readers.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

/// Reads a script, and sets in its job what the user states instead.
Imported read_script(std::string_view text, const std::string& file, const ImportGiven& given) {
  if (!given.family.empty())
    throw UsageError("--family is of a model's config; a script has the flags of the model itself");
  if (given.job) throw UsageError("found JOB and --from; the script that --from names has the job");
  Imported imported = read_framework_script(text, file, given);
  set_given(*imported.job, given, file);
  return imported;
}

/// A Reader is of one kind of file.
struct Reader {
  std::string_view kind;
  /// Returns whether text is of this kind, sound or not. `read` names a fault in it.
  bool (*looks_like)(std::string_view text);
  Imported (*read)(std::string_view text, const std::string& file, const ImportGiven& given);
};

// A new kind is a new row. The first row that fits reads the file.
constexpr std::array kReaders = {
    Reader{"Hugging Face config.json", looks_like_hugging_face, read_hugging_face},
    Reader{"script or flags of a framework", looks_like_framework_script, read_script},
    Reader{"configuration file of a framework", looks_like_framework_document,
           read_framework_document},
};

const Reader* reader_of(std::string_view text) {
  const auto found =
      std::ranges::find_if(kReaders, [&](const Reader& reader) { return reader.looks_like(text); });
  return found == kReaders.end() ? nullptr : &*found;
}

std::string_view word_of(Family family) { return kFamilies[static_cast<std::size_t>(family)]; }

std::string_view word_of(DType precision) {
  for (std::size_t i = 0; i < kPrecisions.size(); ++i) {
    if (kPrecisionTypes[i] == precision) return kPrecisions[i];
  }
  return "";
}

std::string head_words(const Job& job) {
  if (job.kv_heads == job.heads) return fmt::format("heads {}", job.heads);
  return fmt::format("heads {} ({} of keys and values)", job.heads, job.kv_heads);
}

std::string adapter_line(const Job& job) {
  if (!job.adapters) return "";
  std::vector<std::string_view> targets;
  for (std::size_t i = 0; i < kAdapterTargets.size(); ++i) {
    if (job.adapters->targets.has(AdapterTarget(i))) targets.push_back(kAdapterTargets[i]);
  }
  return fmt::format("  adapters    rank {}, scale {}, dropout {}: {}; frozen weights in {}\n",
                     job.adapters->rank, job.adapters->scale, job.adapters->dropout,
                     fmt::join(targets, ", "), kFrozenWeights[std::size_t(job.frozen_weights)]);
}

std::string job_lines(const Job& job) {
  return fmt::format(
      "  job         {}: {} family, {} layers, hidden {}, {}, ffn {}, vocabulary {}, {} embeddings\n"
      "  step        {} sequences of {} tokens, {}\n",
      job.name, word_of(job.family), job.layers, job.hidden, head_words(job), job.ffn_hidden,
      job.vocab, job.tied_embeddings ? "tied" : "untied", job.global_batch, job.sequence,
      word_of(job.precision));
}

}  // namespace

Imported import_text(std::string_view text, const std::string& file, const ImportGiven& given) {
  const Reader* reader = reader_of(text);
  const bool of_model = reader != nullptr && reader->read == read_hugging_face;
  if (const std::string foreign = of_model ? "" : foreign_file(text); !foreign.empty())
    throw InputError(file, "", foreign);
  if (reader == nullptr) {
    std::vector<std::string_view> kinds;
    for (const Reader& known : kReaders) kinds.push_back(known.kind);
    throw InputError(file, "",
                     fmt::format("its content fits no kind of file that is imported; known: {}",
                                 fmt::join(kinds, ", ")));
  }
  Imported imported = reader->read(text, file, given);
  if (imported.kind.empty()) imported.kind = reader->kind;
  if (given.vocab && (!imported.job || imported.job->vocab != *given.vocab)) {
    throw UsageError(
        fmt::format("--vocab is for files that do not state the vocabulary; {} {}", file,
                    imported.job ? fmt::format("states {}", imported.job->vocab) : "has no model"));
  }
  return imported;
}

Imported import_file(const std::filesystem::path& path, const ImportGiven& given) {
  return import_text(read_file(path), path.string(), given);
}

bool takes_job(std::string_view text) {
  const Reader* reader = reader_of(text);
  return reader != nullptr && reader->read == read_framework_document;
}

std::string text_of(const UnknownFlag& unknown) {
  if (unknown.line <= 0) return unknown.option;
  return unknown.why.empty()
             ? fmt::format("{} (line {})", unknown.option, unknown.line)
             : fmt::format("flags in {} (line {}: {})", unknown.option, unknown.line, unknown.why);
}

void refuse_unknown(const Imported& imported, const std::string& file) {
  if (imported.unknown.empty()) return;
  std::vector<std::string> names;
  for (const UnknownFlag& unknown : imported.unknown) names.push_back(text_of(unknown));
  throw InputError(file, "",
                   fmt::format("not known to {}: {}; each may change model, memory and time. "
                               "--ignore-unknown goes on without them",
                               imported.kind, fmt::join(names, ", ")));
}

bool is_importable(std::string_view text) {
  return reader_of(text) != nullptr || !foreign_file(text).empty();
}

std::string import_summary(const Imported& imported, const std::string& parameters) {
  std::string text = imported.kind + "\n";
  if (imported.job) text += job_lines(*imported.job) + adapter_line(*imported.job) + parameters;
  if (imported.devices) text += fmt::format("  devices     {}\n", *imported.devices);
  if (imported.framework) text += fmt::format("  framework   {}\n", imported.framework->name);
  if (imported.strategy)
    text += fmt::format("  strategy    {}\n", strategy_summary(*imported.strategy));
  for (const std::string& note : imported.notes) text += fmt::format("  note        {}\n", note);
  for (const UnknownFlag& unknown : imported.unknown) {
    text += fmt::format("  not known   {}: may change model, memory and time\n", text_of(unknown));
  }
  for (const std::string& key : imported.unread) text += fmt::format("  not read    {}\n", key);
  return text;
}

std::string import_summary_json(const Imported& imported) {
  const auto object_of = [](const auto& value, const auto& write) {
    return value ? Json::parse(write(*value)) : Json(nullptr);
  };
  Json json = {{"kind", imported.kind}, {"job", object_of(imported.job, job_text)}};
  json["parameters"] =
      imported.job ? Json(parameter_count(build_forward(*imported.job, 1))) : Json(nullptr);
  json["trained"] = imported.job && has_frozen(*imported.job)
                        ? Json(trained_parameter_count(build_forward(*imported.job, 1)))
                        : Json(nullptr);
  json["strategy"] = object_of(imported.strategy, strategy_text);
  json["framework"] = imported.framework ? Json(imported.framework->name) : Json(nullptr);
  json["devices"] = imported.devices ? Json(*imported.devices) : Json(nullptr);
  json["notes"] = imported.notes;
  json["unread"] = imported.unread;
  json["unknown"] = Json::array();
  for (const UnknownFlag& unknown : imported.unknown) {
    json["unknown"].push_back({{"option", unknown.option},
                               {"line", unknown.line > 0 ? Json(unknown.line) : Json(nullptr)}});
  }
  return json_text(json);
}

}  // namespace plimsoll
