// The kinds of files that can be imported are listed here, and a file is given to its reader.
#include "imports/imported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "imports/hugging_face.h"
#include "imports/megatron_lm.h"
#include "imports/reader.h"

namespace plimsoll {
namespace {

/// Reads a script, and sets in its job what the user states instead.
Imported read_script(std::string_view text, const std::string& file, const ImportGiven& given) {
  if (!given.family.empty())
    throw UsageError("--family is of a model's config; a script has the flags of the model itself");
  Imported imported = read_megatron_lm(text, file, given.devices);
  Job& job = *imported.job;
  job.sequence = given.sequence.value_or(job.sequence);
  job.global_batch = given.global_batch.value_or(job.global_batch);
  job.precision = given.precision.value_or(job.precision);
  job.dropout = given.dropout.value_or(job.dropout);
  if (!given.name.empty()) job.name = given.name;
  check_job(job, file);
  return imported;
}

// A new kind is a new row. The first row that fits reads the file.
constexpr std::array kReaders = {
    Reader{"Hugging Face config.json", looks_like_hugging_face, read_hugging_face},
    Reader{"script or flags of a framework", looks_like_megatron_lm, read_script},
};

const Reader* reader_of(std::string_view text) {
  const auto found =
      std::ranges::find_if(kReaders, [&](const Reader& reader) { return reader.looks_like(text); });
  return found == kReaders.end() ? nullptr : &*found;
}

}  // namespace

Imported import_text(std::string_view text, const std::string& file, const ImportGiven& given) {
  const Reader* reader = reader_of(text);
  if (reader == nullptr) {
    std::vector<std::string_view> kinds;
    for (const Reader& known : kReaders) kinds.push_back(known.kind);
    throw InputError(file, "",
                     fmt::format("its content fits no kind of file that is imported; known: {}",
                                 fmt::join(kinds, ", ")));
  }
  Imported imported = reader->read(text, file, given);
  if (imported.kind.empty()) imported.kind = reader->kind;
  return imported;
}

Imported import_file(const std::filesystem::path& path, const ImportGiven& given) {
  return import_text(read_file(path), path.string(), given);
}

bool is_importable(std::string_view text) { return reader_of(text) != nullptr; }

}  // namespace plimsoll
