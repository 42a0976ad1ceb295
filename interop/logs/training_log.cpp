// A log is read as a stream of lines; files of columns and trainer_state.json have other forms.
#include "interop/logs/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <istream>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "interop/logs/block_buffer.h"
#include "interop/logs/log_lines.h"
#include "interop/logs/trace_events.h"

namespace plimsoll {
namespace {

constexpr std::size_t kBlock = kLogBlock;  // also the most of a line that is read
constexpr std::size_t kMostJson = std::size_t{64} << 20;

using Record = std::vector<std::pair<std::string, std::string>>;

/// Calls `line(text, number)` for each line of a stream; parts of a line that carriage returns
/// divide come one by one. A line longer than a block comes without the rest. Returns how many had
/// to be cut.
template <typename Function>
std::int64_t for_each_line(const BlockSource& source, std::string buffer, Function line) {
  std::int64_t number = 1, cut = 0;
  std::size_t filled = buffer.size();
  buffer.resize(std::max(filled, 2 * kBlock));
  bool skipping = false;
  const auto parts = [&](std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\r'), text.size());
      if (end > 0) line(text.substr(0, end), number);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  };
  for (bool more = true; more;) {
    const std::size_t read = source(std::span(buffer).subspan(filled));
    more = read > 0;
    filled += read;
    const std::string_view text(buffer.data(), filled);
    std::size_t at = 0;
    for (std::size_t end; (end = text.find('\n', at)) != text.npos; at = end + 1, ++number) {
      if (!skipping) parts(text.substr(at, end - at));
      skipping = false;
    }
    std::string_view rest = text.substr(at);
    if (rest.size() > kBlock || !more) {
      // The states of a progress bar may be one line of any length.
      const std::size_t part = more ? rest.rfind('\r') : rest.size();
      const bool whole = part != rest.npos;
      if (!skipping) parts(whole ? rest.substr(0, part) : rest);
      if (!whole) {
        if (!skipping) ++cut;
        skipping = true;
      }
      rest.remove_prefix(whole ? part : rest.size());
    }
    std::memmove(buffer.data(), rest.data(), rest.size());
    filled = rest.size();
  }
  return cut;
}

/// Returns the cells of a line of comma-separated values (RFC 4180, without line ends in cells).
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        cells.back() += line[++i];
      else
        quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

/// Returns the names of columns, or nothing where the line is no header with steps. Weights &
/// Biases writes "RUN - NAME", and columns NAME__MIN and NAME__MAX.
std::vector<std::string> columns_of(std::string_view line, LogLines& lines) {
  std::vector<std::string> names = cells_of(line);
  if (names.size() < 2 || names.size() > 10'000) return {};
  bool steps = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string& name = names[i];
    if (const std::size_t dash = name.rfind(" - "); dash != name.npos) name = name.substr(dash + 3);
    if (name.ends_with("__MIN") || name.ends_with("__MAX")) name.clear();
    steps = steps || is_step_column(name);
    if (!name.empty() && std::find(names.begin(), names.begin() + std::ptrdiff_t(i), name) !=
                             names.begin() + std::ptrdiff_t(i)) {
      lines.doubt(
          fmt::format("several columns are named '{}', of several runs, say: only the "
                      "first is read",
                      printable(name)));
      name.clear();
    }
  }
  return steps ? names : std::vector<std::string>();
}

/// Reads the records of a trainer_state.json. Python writes NaN, which JSON does not have.
void read_trainer_state(const BlockSource& source, std::string text, const std::string& file,
                        LogLines& lines) {
  std::string block(kBlock, ' ');
  while (const std::size_t read = source(block)) {
    text.append(block, 0, read);
    if (text.size() > kMostJson) throw InputError(file, "", "it has more than 64 MiB of JSON");
  }
  for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
    for (std::size_t at = 0; (at = text.find(word, at)) != text.npos;) {
      const bool value = at > 1 && (text[at - 1] == ' ' || text[at - 1] == ':');
      value ? void(text.replace(at, word.size(), "null")) : void(++at);
    }
  }
  const Json json = parse_json(text, file);
  if (!json.is_object() || !json.contains("log_history") || !json["log_history"].is_array()) {
    throw InputError(file, "/log_history", "a list of records is allowed");
  }
  std::int64_t number = 0;
  for (const Json& entry : json["log_history"]) {
    ++number;
    if (!entry.is_object()) continue;
    Record record;
    for (const auto& [name, value] : entry.items()) {
      record.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
    lines.read_record(record, number);
    const auto value = [&](const char* name) {
      return entry.contains(name) && entry[name].is_number() ? entry[name].get<double>() : 0;
    };
    lines.add_run(value("train_runtime"), value("train_steps_per_second"));
  }
}

enum class Form : std::uint8_t { lines, trainer_state, trace };

/// Returns the form of a log by its beginning; nothing if it may be a document of the product.
std::optional<Form> form_of(std::string_view begin) {
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == begin.npos) return std::nullopt;
  if (begin[first] != '{') return Form::lines;
  const auto has = [&](std::string_view text) { return begin.find(text) != begin.npos; };
  if (has("\"log_history\"")) return Form::trainer_state;
  if (has("\"traceEvents\"") || has("\"deviceProperties\"")) return Form::trace;
  const bool several = has("}\n{") || has("}\r\n{");  // an object in each line
  return several ? std::optional(Form::lines) : std::nullopt;
}

std::string first_block(const BlockSource& source) {
  std::string begin(kBlock, '\0');
  std::size_t filled = 0;
  while (const std::size_t read = source(std::span(begin).subspan(filled))) filled += read;
  begin.resize(filled);
  return begin;
}

TrainingLog read_log(BlockSource source, const std::string& file) {
  std::string begin = first_block(source);
  if (begin.starts_with("\x1f\x8b") || begin.starts_with("\x28\xb5\x2f\xfd")) {
    throw InputError(file, "", "it is compressed: decompress it first");
  }
  if (begin.starts_with("\xff\xfe") || begin.starts_with("\xfe\xff")) {
    throw InputError(file, "", "it is UTF-16 text; UTF-8 is allowed");
  }
  const Form form = form_of(begin).value_or(Form::lines);
  if (form == Form::trace) return read_profiler_trace(std::move(source), std::move(begin), file);
  LogLines lines;
  if (form == Form::trainer_state) {
    read_trainer_state(source, std::move(begin), file, lines);
    return lines.finish(file);
  }
  std::vector<std::string> columns;
  const std::int64_t cut =
      for_each_line(source, std::move(begin), [&](std::string_view line, std::int64_t number) {
        if (number == 1 && columns.empty()) columns = columns_of(line, lines);
        if (columns.empty()) return lines.read(line, number);
        Record record;
        const std::vector<std::string> cells = cells_of(line);
        for (std::size_t i = 0; i < std::min(cells.size(), columns.size()); ++i) {
          if (!columns[i].empty() && !cells[i].empty()) record.emplace_back(columns[i], cells[i]);
        }
        lines.read_record(record, number);
      });
  if (cut > 0) {
    lines.doubt(fmt::format("{} lines are longer than 256 KiB, and their rest is not read", cut));
  }
  return lines.finish(file);
}

}  // namespace

TrainingLog read_training_log(std::istream& stream, const std::string& file) {
  const auto source = [&](std::span<char> block) {
    stream.read(block.data(), std::streamsize(block.size()));
    return std::size_t(stream.gcount());
  };
  return read_log(source, file);
}

TrainingLog read_training_log(const std::filesystem::path& path) {
  return read_log(read_blocks(path), path.string());
}

bool is_training_log(const std::filesystem::path& path) {
  const auto form = form_of(first_block(read_blocks(path)));
  return form && (form != Form::lines || path.extension() != ".json");
}

}  // namespace plimsoll
