// Each line is one write and one sync, so that all tests in the file are finished.
#include "calibrate/sessions/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kVersion = 1;

JournalEntry entry_from(const Json& json, const std::string& file) {
  JsonObject object(json, file);
  JournalEntry entry;
  entry.test = object.text("test");
  entry.unsteady = object.boolean("unsteady");
  entry.took = Seconds(object.number("took_s", 0, 1e6));
  entry.measured = parse_calibration(json_text(object.raw("measured")), file);
  object.finish();
  return entry;
}

/// Takes one line after the first. Throws InputError where it does not belong in a journal.
void take(std::string_view line, const std::string& file, std::vector<JournalEntry>& finished) {
  const Json json = parse_json(line, file);
  if (!json.is_object() || !json.contains("discarded")) {
    finished.push_back(entry_from(json, file));
    return;
  }
  JsonObject object(json, file);
  const std::vector<std::string> tests = object.texts("discarded");
  object.finish();
  std::erase_if(finished, [&](const JournalEntry& entry) {
    return std::find(tests.begin(), tests.end(), entry.test) != tests.end();
  });
}

}  // namespace

std::string journal_begin(const std::string& settings) {
  return Json{{"journal", kVersion}, {"settings", settings}}.dump() + "\n";
}

std::string journal_line(const JournalEntry& entry) {
  const Json measured = parse_json(calibration_text(entry.measured), "a calibration");
  return Json{{"test", entry.test},
              {"unsteady", entry.unsteady},
              {"took_s", entry.took.value()},
              {"measured", measured}}
             .dump() +
         "\n";
}

JournalText parse_journal(std::string_view text, const std::string& settings,
                          const std::string& file) {
  JournalText read;
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const std::string_view line = text.substr(at, end - at);
    if (at == 0) {
      const Json json = parse_json(line, file);
      JsonObject header(json, file);
      header.integer("journal", kVersion, kVersion);
      if (const std::string found = header.text("settings"); found != settings) {
        throw InputError(
            file, "/settings",
            fmt::format("found \"{}\"; this calibration is \"{}\": without --resume it "
                        "begins anew",
                        printable(found, 200), settings));
      }
      continue;
    }
    try {
      take(line, file, read.finished);
    } catch (const InputError&) {
      ++read.passed_over;
    }
  }
  if (at < text.size()) ++read.passed_over;
  read.bytes = at;
  return read;
}

std::filesystem::path journal_of(const std::filesystem::path& calibration) {
  return calibration.string() + ".journal";
}

Journal::Journal(std::filesystem::path path, const std::string& settings, bool resume)
    : path_(std::move(path)) {
  file_ = open_in_place(path_, O_WRONLY);
  // Ranks of a run whose launcher was killed may still be at work.
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw EnvironmentError(fmt::format("another calibration is writing {}", path_.string()));
  }
  if (resume) read_ = parse_journal(read_file(path_), settings, path_.string());
  if (ftruncate(file_.get(), off_t(read_.bytes)) != 0 || lseek(file_.get(), 0, SEEK_END) < 0) {
    throw EnvironmentError(
        fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  }
  if (read_.bytes == 0) append(journal_begin(settings));
}

void Journal::add(const JournalEntry& entry) { append(journal_line(entry)); }

void Journal::discard(std::span<const std::string> tests) {
  append(Json{{"discarded", std::vector<std::string>(tests.begin(), tests.end())}}.dump() + "\n");
}

void Journal::append(const std::string& line) {
  int error = write_all(file_.get(), line);
  if (error == 0 && uninterrupted([&] { return fdatasync(file_.get()); }) != 0) error = errno;
  if (error == 0) return;
  throw EnvironmentError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(error)));
}

}  // namespace plimsoll
