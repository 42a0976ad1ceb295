// nccl-tests' text: columns are bound by the names in the table's header.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "interop/hardware/line_words.h"
#include "interop/hardware/nccl_rows.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostRows = 100'000;  // of a file
constexpr std::size_t kMostWords = 64;      // looked at, of a line

bool is_integer(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// Behind what launchers put before each line: "[1,0]<stdout>:" (mpirun --tag-output), "0: " (srun
/// --label), "[0] " (a rank).
std::string_view untagged(std::string_view line) {
  if (line.starts_with('[')) {
    const std::size_t rank = line.find_first_not_of("0123456789", 1);
    if (rank > 1 && rank != line.npos && line.substr(rank).starts_with("] "))
      return line.substr(rank + 2);
    constexpr std::array<std::string_view, 2> kStreams = {"<stdout>:", "<stderr>:"};
    for (std::string_view stream : kStreams) {
      const std::size_t end = line.find(stream);
      if (end != line.npos && end < 40) return line.substr(end + stream.size());
    }
  }
  const std::size_t digits = std::min(line.find_first_not_of(" 0123456789"), line.size());
  const bool label = digits > 0 && line.substr(digits).starts_with(": ");
  return label ? line.substr(digits + 2) : line;
}

/// Returns what stands before the '#' of the headers of tables. Launchers put it before all lines
/// of a process: "[0]", "node7:".
std::vector<std::string_view> tags_of(std::string_view text) {
  std::vector<std::string_view> tags;
  constexpr std::string_view kHeader = "size";
  for (std::size_t at = 0; (at = text.find(kHeader, at)) != text.npos; at += kHeader.size()) {
    const std::size_t newline = text.rfind('\n', at);
    const std::size_t begin = newline == text.npos ? 0 : newline + 1;
    const std::vector<Word> words =
        words_of(text.substr(at, text.find('\n', at) - at), 0, kMostWords);
    const bool header = words.size() > 2 && words[0].text == kHeader && words[1].text == "count" &&
                        words[2].text == "type";
    if (!header) continue;
    std::string_view tag = text.substr(begin, at - begin);
    tag = tag.substr(0, tag.find_last_not_of(" \t#") + 1);
    if (!tag.empty() && std::ranges::find(tags, tag) == tags.end()) tags.push_back(tag);
  }
  return tags;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns the bytes of a line that are a tag, or 0. The digits of a tag that has a time
/// ("10:05:59", "1767225605.31") differ by line.
std::size_t tag_bytes(std::string_view line, std::string_view tag) {
  if (line.starts_with(tag)) return tag.size();
  bool time = false;
  std::size_t at = 0;
  for (std::size_t i = 0; i < tag.size(); ++i, ++at) {
    if (at >= line.size() || is_digit(tag[i]) != is_digit(line[at])) return 0;
    if (!is_digit(tag[i])) {
      if (tag[i] != line[at]) return 0;
      time = time || ((tag[i] == ':' || tag[i] == '.') && i > 0 && i + 1 < tag.size() &&
                      is_digit(tag[i - 1]) && is_digit(tag[i + 1]));
      continue;
    }
    while (i + 1 < tag.size() && is_digit(tag[i + 1])) ++i;
    while (at + 1 < line.size() && is_digit(line[at + 1])) ++at;
  }
  return time ? at : 0;
}

/// Half a unit of the last digit of "12.30" or "1.2e+03".
double half_unit(std::string_view text) {
  const std::size_t exponent = text.find_first_of("eE");
  const std::string_view digits = text.substr(0, exponent);
  int power = 0;
  if (exponent != text.npos) {
    std::string_view tail = text.substr(exponent + 1);
    if (tail.starts_with('+')) tail.remove_prefix(1);
    std::from_chars(tail.data(), tail.data() + tail.size(), power);
  }
  const std::size_t point = digits.find('.');
  if (point != digits.npos) power -= int(digits.size() - point - 1);
  return 0.5 * std::pow(10.0, power);
}

enum class Column {
  size,
  count,
  dtype,
  time,
  bus_bandwidth,
  wrong,      ///< elements
  error,      ///< largest, of old releases
  root,       ///< a rank, or -1
  deviation,  ///< of iterations, percent of their mean
  other,
};

/// Which word of a row holds what: leading columns, one block out of place, one in place.
struct Table {
  std::vector<Column> leading, block;
  bool timestamp = false;  ///< two words at the end
  std::size_t words(bool both) const {
    return leading.size() + block.size() * (both ? 2 : 1) + (timestamp ? 2 : 0);
  }
};

Column column_named(std::string_view name) {
  if (name == "size") return Column::size;
  if (name == "count") return Column::count;
  if (name == "type") return Column::dtype;
  if (name == "time" || name == "cputime") return Column::time;
  if (name == "busbw") return Column::bus_bandwidth;
  if (name == "#wrong") return Column::wrong;
  if (name == "error") return Column::error;
  if (name == "root") return Column::root;
  if (name == "i_cv%") return Column::deviation;
  return Column::other;
}

/// Reads one file, line by line.
class TextReader {
 public:
  TextReader(const std::string& file, const NcclGiven& given) : file_(file), given_(given) {}

  std::vector<NcclRun> read(std::string_view text) {
    tags_ = tags_of(text);
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      complete_ = newline != text.npos;
      ++number_;
      read_line(text.substr(0, newline));
      text.remove_prefix(complete_ ? newline + 1 : text.size());
    }
    end_run();
    if (runs_.empty()) {
      throw InputError(file_, "",
                       "no table of nccl-tests: no line \"# size count type ... time algbw "
                       "busbw\"");
    }
    return std::move(runs_);
  }

 private:
  /// The parts of a run that have been read so far.
  struct Open {
    NcclRun run;
    NcclDevices devices;
    std::optional<Table> table;
    bool has_parameters = false, has_program = false;
    bool errors_column = false;         ///< the largest error stands where the wrong elements do
    std::optional<bool> within_bounds;  ///< what the line below the table says of them
  };

  std::string where(std::size_t column = 1) const { return fmt::format("{}:{}", number_, column); }
  [[noreturn]] void fail(const Word& word, const std::string& allowed) const {
    throw InputError(file_, where(word.column),
                     fmt::format("found \"{}\"; {}", printable(word.text), allowed));
  }

  std::int64_t integer(const Word& word, std::int64_t least, std::int64_t most) const {
    std::int64_t value = 0;
    const char* end = word.text.data() + word.text.size();
    const auto [stop, error] = std::from_chars(word.text.data(), end, value);
    if (error != std::errc() || stop != end || value < least || value > most) {
      fail(word, fmt::format("an integer from {} to {} is required", least, most));
    }
    return value;
  }

  double number(const Word& word, double least, double most, const char* what) const {
    double value = 0;
    const char* end = word.text.data() + word.text.size();
    const auto [stop, error] = std::from_chars(word.text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= least && value <= most)) {
      fail(word, fmt::format("{} from {} to {} is required", what, least, most));
    }
    return value;
  }

  void read_line(std::string_view raw) {
    if (raw.size() > kMostLine) {
      throw InputError(
          file_, where(),
          fmt::format("a line of {} bytes; at most {} are allowed", raw.size(), kMostLine));
    }
    if (const std::size_t nul = raw.find('\0'); nul != raw.npos) {
      throw InputError(file_, where(nul + 1), "a NUL byte");
    }
    std::size_t tag = 0;
    for (std::size_t i = 0; tag == 0 && i < tags_.size(); ++i) tag = tag_bytes(raw, tags_[i]);
    const std::string_view line = tag == 0 ? untagged(raw) : raw.substr(tag);
    std::size_t at = line.find_first_not_of(" #\t");
    if (at == line.npos) return;
    const std::vector<Word> words = words_of(line, at, kMostWords);
    if (words.empty()) return;
    const bool comment = line.substr(0, at).find('#') != line.npos;
    if (read_preamble(words, line)) return;
    if (comment) return read_comment(words);
    if (open_.table) read_row(words_of(line, 0, kMostWords));
  }

  /// Lines before the table. The '#' may be missing: some copies of such output lost it.
  bool read_preamble(const std::vector<Word>& words, std::string_view line) {
    const auto is = [&](std::size_t i, std::string_view text) {
      return i < words.size() && words[i].text == text;
    };
    if (is(0, "nccl-tests") && is(1, "version") && words.size() > 2) {
      begin_run(open_.has_parameters || open_.has_program);
      open_.run.versions.push_back("nccl-tests " + printable(words[2].text));
      for (const Word& word : words) {
        constexpr std::string_view kLibrary = "nccl-library=";
        if (!word.text.starts_with(kLibrary)) continue;
        const Word code = {word.text.substr(kLibrary.size()), word.column + kLibrary.size()};
        open_.run.versions.push_back("NCCL " + nccl_version(integer(code, 1000, 10'000'000)));
      }
      return true;
    }
    if (is(0, "NCCL") && is(1, "version") && words.size() > 2) {
      nccl_ = "NCCL " + printable(words[2].text);
      return true;
    }
    if (is(0, "Collective") && is(1, "test") && is(2, "starting:") && words.size() > 3) {
      begin_run(open_.has_program);
      open_.has_program = true;
      const auto name = nccl_collective(words[3].text);
      if (!name) fail(words[3], "the name of a collective of nccl-tests is required");
      open_.run.collective = *name;
      return true;
    }
    if (is(0, "nThread") && is(2, "nGpus") && words.size() > 3) {
      begin_run(open_.has_parameters);
      open_.has_parameters = true;
      read_parameters(words);
      return true;
    }
    if (is(0, "Rank") && words.size() > 4) return read_device(words, line);
    return false;
  }

  void read_parameters(const std::vector<Word>& words) {
    constexpr std::int64_t kMostIterations = 1'000'000'000;
    const std::int64_t threads = integer(words[1], 1, 1 << 16);
    open_.devices.per_process = threads * integer(words[3], 1, 1 << 16);
    std::int64_t iterations = 1, together = 1;
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
      if (words[i].text != "iters:") continue;
      const std::string_view before = words[i - 1].text;
      if (before == "agg") {
        together = integer(words[i + 1], 1, kMostIterations);
      } else if (before != "warmup") {
        iterations = integer(words[i + 1], 1, kMostIterations);
      }
    }
    open_.run.iterations = std::min(kMostIterations, iterations * together);
  }

  /// "Rank R [Group G] Pid P on HOST device D [BUS] NAME". False: some other line.
  bool read_device(const std::vector<Word>& words, std::string_view line) {
    // A block that was cut ends within a line.
    if (words.back().text.ends_with("...")) open_.devices.partial = true;
    const bool grouped = words[2].text == "Group";
    const std::size_t pid = grouped ? 4 : 2;
    if (words.size() < pid + 7 || words[pid].text != "Pid" || words[pid + 2].text != "on" ||
        words[pid + 4].text != "device") {
      return false;
    }
    if (open_.table) end_run();  // a list of its own: the next run's
    NcclDevice device;
    device.where = where();
    device.rank = integer(words[1], 0, (1 << 22) - 1);
    if (grouped) device.group = integer(words[3], 0, 1 << 22);
    device.host = words[pid + 3].text;
    const std::size_t bus = line.find(']');
    const std::size_t name = bus == line.npos ? bus : line.find_first_not_of(' ', bus + 1);
    if (name != line.npos) device.name = line.substr(name, line.find_last_not_of(" \r") + 1 - name);
    if (device.name.ends_with("...")) device.name.clear();
    open_.devices.devices.push_back(std::move(device));
    return true;
  }

  void read_comment(const std::vector<Word>& words) {
    if (words[0].text == "...") open_.devices.partial = true;
    if (words[0].text == "size" && words.size() > 4 && words[1].text == "count") {
      return read_header(words);
    }
    const auto count = [&](std::string_view text) {
      return std::count_if(words.begin(), words.end(),
                           [&](const Word& word) { return word.text == text; });
    };
    if (words[0].text == "(B)" && (count("(us)") < 2 || count("(GB/s)") < 4)) {
      fail(words[0], "times in (us) and bandwidths in (GB/s) are required");
    }
    if (words[0].text == "Out" && words.size() > 5 && words[1].text == "of") {
      open_.within_bounds = words.back().text == "OK";
    }
  }

  void read_header(const std::vector<Word>& words) {
    const auto is_time = [](const Word& word) { return column_named(word.text) == Column::time; };
    const auto first = std::find_if(words.begin(), words.end(), is_time);
    const auto second =
        first == words.end() ? first : std::find_if(first + 1, words.end(), is_time);
    if (second == words.end()) fail(words[0], "columns time algbw busbw, twice, are required");
    Table table;
    for (auto word = words.begin(); word != first; ++word) {
      table.leading.push_back(column_named(word->text));
    }
    for (auto word = first; word != second; ++word) table.block.push_back(column_named(word->text));
    auto rest = second;
    for (Column column : table.block) {
      if (rest == words.end() || column_named(rest->text) != column) {
        fail(*second, "the in-place columns must be named as the out-of-place ones");
      }
      ++rest;
    }
    table.timestamp = rest != words.end() && rest->text == "timestamp";
    const auto holds = [](const std::vector<Column>& columns, Column column) {
      return std::count(columns.begin(), columns.end(), column) == 1;
    };
    if (!holds(table.leading, Column::size) || !holds(table.leading, Column::count) ||
        !holds(table.leading, Column::dtype) || !holds(table.block, Column::bus_bandwidth)) {
      fail(words[0], "columns size, count, type and busbw are required");
    }
    if (rest + (table.timestamp ? 1 : 0) != words.end()) {
      fail(*rest, "nothing is expected behind the in-place columns");
    }
    open_.run.host_time = first->text == "cputime";
    if (!open_.table) open_table();
    open_.table = std::move(table);
  }

  /// The preamble is complete.
  void open_table() {
    NcclRun& run = open_.run;
    run.file = file_;
    run.where = where();
    if (run.collective.empty()) run.collective = given_.collective;
    if (run.collective.empty()) {
      throw InputError(file_, where(),
                       "the file does not name the collective of this table (as old releases of "
                       "nccl-tests): --collective can");
    }
    if (run.iterations == 0) run.iterations = 20;  // nccl-tests' default
    if (run.versions.empty() && !nccl_.empty()) run.versions.push_back(nccl_);
    place_ranks(run, open_.devices, given_);
    run.date = given_.date;
  }

  /// Whether the last words of a line are a row: its type is a word between numbers.
  bool ends_in_row(const std::vector<Word>& words) const {
    const std::size_t at = words.size() - std::min(open_.table->words(true), words.size());
    return at > 0 && is_integer(words[at].text) && is_integer(words[at + 1].text) &&
           words[at + 2].text[0] >= 'a';
  }

  void read_row(const std::vector<Word>& words) {
    const Table& table = *open_.table;
    const bool starts = words.size() > 1 && is_integer(words[0].text) && is_integer(words[1].text);
    if (!starts && ends_in_row(words))
      note(fmt::format("a row behind \"{}\": left out", printable(words[0].text)));
    if (!starts) return;  // something between the rows
    if (!complete_) return note("the file ends within this row: left out");
    const bool both = words.size() == table.words(true);
    // Trace replays leave the out-of-place columns blank.
    if (!both && words.size() != table.words(false)) {
      return note(
          fmt::format("{} words where a row has {}: left out", words.size(), table.words(true)));
    }
    if (rows_++ == kMostRows) {
      throw InputError(file_, where(), fmt::format("more than {} rows", kMostRows));
    }
    NcclRow row;
    row.where = where();
    std::size_t at = 0;
    for (Column column : table.leading) {
      const Word& word = words[at++];
      if (column == Column::size) row.size = Bytes(integer(word, 0, kMostNcclSize));
      if (column == Column::count) row.count = integer(word, 0, kMostNcclSize);
      if (column == Column::dtype) row.dtype = printable(word.text);
      if (column == Column::root && !is_integer(word.text))
        return note(fmt::format("root \"{}\" is no rank: left out", printable(word.text)));
    }
    check_size(open_.run, row);
    if (both) row.out_of_place = timing(row, words, at);
    row.in_place = timing(row, words, at + (both ? table.block.size() : 0));
    if (table.timestamp && open_.run.date.empty()) open_.run.date = words[words.size() - 2].text;
    open_.run.rows.push_back(std::move(row));
  }

  NcclTiming timing(const NcclRow& row, const std::vector<Word>& words, std::size_t first) {
    NcclTiming result;
    NcclRounding rounding;
    for (std::size_t i = 0; i < open_.table->block.size(); ++i) {
      const Word& word = words[first + i];
      switch (open_.table->block[i]) {
        case Column::time:
          result.time = Seconds(number(word, 1e-3, kMostNcclMicroseconds, "a time in us") / 1e6);
          rounding.time_us = half_unit(word.text);
          break;
        case Column::bus_bandwidth:
          result.bus_bandwidth = number(word, 0, 1e9, "a bandwidth in GB/s");
          rounding.bus_bandwidth = half_unit(word.text);
          break;
        case Column::wrong:
          // Printed with %g: "1e+06".
          if (word.text != "N/A") {
            result.wrong = std::int64_t(number(word, 0, 1e15, "a number of elements or N/A"));
          }
          break;
        case Column::error:
          open_.errors_column = word.text != "N/A";
          break;
        case Column::deviation:
          // Half of normally distributed times lie within 0.6745 standard deviations.
          result.spread = Seconds(number(word, 0, 1e6, "a percentage") / 100);
          break;
        default:
          break;
      }
    }
    if (result.spread) *result.spread = 2 * 0.6745 * result.time.value() * *result.spread;
    if (row.size.count() > 0) check_bandwidth(open_.run, row, result, rounding);
    return result;
  }

  void note(const std::string& text) {
    open_.run.notes.push_back(fmt::format("line {}: {}", number_, text));
  }

  /// Another run follows when what begins one is there already.
  void begin_run(bool again) {
    if (again || open_.table) end_run();
  }

  void end_run() {
    if (open_.table) {
      NcclRun& run = open_.run;
      if (open_.errors_column && open_.within_bounds == true) {
        for (NcclRow& row : run.rows) {
          if (row.out_of_place) row.out_of_place->wrong = 0;
          if (row.in_place) row.in_place->wrong = 0;
        }
      } else if (open_.errors_column && open_.within_bounds == false) {
        note("values out of bounds, and this layout does not say in which rows: all left out");
        run.rows.clear();
      }
      runs_.push_back(std::move(run));
    }
    open_ = {};
  }

  const std::string& file_;
  const NcclGiven& given_;
  std::size_t number_ = 0, rows_ = 0;
  bool complete_ = true;  ///< the line ends in a newline
  std::vector<std::string_view> tags_;
  std::string nccl_;  ///< version, as NCCL_DEBUG=VERSION prints it
  Open open_;
  std::vector<NcclRun> runs_;
};

}  // namespace

std::vector<NcclRun> parse_nccl_text(std::string_view text, const std::string& file,
                                     const NcclGiven& given) {
  return TextReader(file, given).read(text);
}

}  // namespace plimsoll
