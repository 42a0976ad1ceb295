// The labels of a line decide how it is read.
#include "interop/logs/log_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "interop/logs/steady_part.h"

namespace plimsoll {
namespace {

constexpr std::size_t kMostDoubts = 50;
constexpr std::size_t kMostMemory = 20'000;
constexpr std::size_t kMostArguments = 5'000;
constexpr std::size_t kLongestValue = 4'096;
constexpr std::size_t kMostTimers = 200;
constexpr std::size_t kMostTimes = 4'096;  // kept of a timer

/// Returns the rank in "[Rank 7]" shortly before a place of the line, or in its prefix "7: ".
std::optional<std::int64_t> rank_of(std::string_view line, std::size_t at) {
  constexpr std::size_t kNear = 500;
  const std::string_view before = line.substr(0, at).substr(at - std::min(at, kNear));
  const std::size_t mark = std::max(before.rfind("[Rank ") + 1, before.rfind("[rank") + 1);
  if (mark > 0) {
    const std::size_t end = before.find(']', mark);
    return end == line.npos ? std::nullopt : integer_before(before, end);
  }
  const std::size_t colon = line.substr(0, kNear).find(':');
  if (colon == line.npos || line.find_first_not_of(" 0123456789") != colon) return std::nullopt;
  return integer_before(line, colon);
}

/// Returns the meaning of a column, or null where it has none.
const LabelMeaning* column_meaning(std::string_view name) {
  const LogTable& table = log_table();
  const auto label = std::ranges::find(table.labels, name);
  if (label == table.labels.end()) return nullptr;
  for (const LabelMeaning& meaning : table.meanings[std::size_t(label - table.labels.begin())]) {
    if (meaning.trainer && table.trainers[*meaning.trainer].table) return &meaning;
  }
  return nullptr;
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool is_step_column(std::string_view name) {
  const LabelMeaning* meaning = column_meaning(name);
  return meaning != nullptr && meaning->use == LabelUse::step;
}

LogLines::LogLines()
    : table_(log_table()),
      series_(table_.trainers.size()),
      opened_(table_.trainers.size()),
      has_field_(table_.trainers.size()) {}

void LogLines::doubt(std::string text) {
  if (doubts_.size() < kMostDoubts && std::ranges::find(doubts_, text) == doubts_.end()) {
    doubts_.push_back(std::move(text));
  }
}

std::optional<PrintedValue> LogLines::find_value(std::string_view line, std::size_t at,
                                                 PrintedUnit unit) {
  ++values_sought_;
  return value_after(line, at, unit);
}

std::optional<double> LogLines::value_of(std::string_view line, const LabelHit& hit,
                                         PrintedUnit unit) {
  const auto value = find_value(line, hit.end, unit);
  if (!value) return std::nullopt;
  if (!value->value && refused_.insert(hit.label).second) {
    doubt(
        fmt::format("line {}: the unit of '{}' after '{}' is neither printed nor fixed by the "
                    "trainer, so that it is not read",
                    number_, printable(value->text), table_.labels[hit.label]));
  }
  return value->value;
}

void LogLines::read(std::string_view line, std::int64_t number) {
  number_ = number;
  table_.scanner.scan(line, hits_);
  const std::vector<std::size_t> cuts = ends_of_bars(line);
  if (cuts.empty()) return read_part(line);
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : cuts[i - 1];
    const std::string_view part =
        line.substr(begin, (i < cuts.size() ? cuts[i] : line.size()) - begin);
    table_.scanner.scan(part, hits_);
    read_part(part);
  }
}

void LogLines::read_part(std::string_view line) {
  if (in_timers_) in_timers_ = read_timer_row(line);
  if (hits_.empty() && !in_dump_) return;
  std::erase_if(hits_, [&](const LabelHit& hit) { return !begins_word(line, hit.begin); });
  const bool dots = read_marks(line);
  open_steps(line);
  if (std::ranges::find(opened_, true) != opened_.end()) {
    in_dump_ = false;
  } else if (dots || in_dump_) {
    read_argument(line);
  }
  read_fields(line);
  read_memory(line);
}

/// Returns where states of progress bars end that terminals wrote over each other: behind the
/// bracket before the next.
std::vector<std::size_t> LogLines::ends_of_bars(std::string_view line) const {
  std::vector<std::size_t> ends;
  std::optional<std::size_t> last;
  for (const LabelHit& hit : hits_) {
    if (table_.meanings[hit.label].front().use != LabelUse::bar) continue;
    if (last) {
      const std::size_t end = line.substr(*last, hit.begin - *last).rfind(']');
      if (end != line.npos) ends.push_back(*last + end + 1);
    }
    last = hit.begin;
  }
  return ends;
}

void LogLines::open_steps(std::string_view line) {
  std::fill(opened_.begin(), opened_.end(), false);
  std::fill(has_field_.begin(), has_field_.end(), false);
  for (const LabelHit& hit : hits_) {
    for (const LabelMeaning& meaning : table_.meanings[hit.label]) {
      if (meaning.use != LabelUse::field || meaning.quantity == LogQuantity::loss) continue;
      if (has_field_[*meaning.trainer]) continue;
      has_field_[*meaning.trainer] = find_value(line, hit.end, meaning.unit).has_value();
    }
  }
  for (const LabelHit& hit : hits_) {
    for (const LabelMeaning& meaning : table_.meanings[hit.label]) {
      if (meaning.use == LabelUse::bar) open_bar(line, hit.begin);
      if (meaning.use != LabelUse::step || evaluates_) continue;
      const std::size_t at = *meaning.trainer;
      const TrainerLines& trainer = table_.trainers[at];
      if (opened_[at] || trainer.table) continue;
      // Another value of the trainer has to stand in the line, with its number.
      if (!trainer.opens_alone && !has_field_[at]) continue;
      std::optional<std::int64_t> number;
      if (trainer.counted) {
        number = series_[at].distinct() + 1;
      } else if (trainer.number_before) {
        number = integer_before(line, hit.begin);
      } else if (const auto value = find_value(line, hit.end, printed_unit(""))) {
        const double step = value->value.value_or(-1);
        if (step >= 0 && step < 1e15 && step == std::floor(step)) number = std::int64_t(step);
      }
      if (!number) continue;
      opened_[at] = true;
      series_[at].open(*number, number_, time_stamp(line));
    }
  }
}

void LogLines::open_bar(std::string_view line, std::size_t at) {
  const auto bar = progress_bar(line, at);
  if (!bar || bar->number < 0 || bar->number > bar->total) return;
  for (std::size_t i = 0; i < table_.trainers.size(); ++i) {
    const auto& names = table_.trainers[i].bars;
    const bool named = std::ranges::any_of(names, [&](const std::string& name) {
      return name.empty() ? bar->description.empty() : bar->description.starts_with(name);
    });
    if (!named) continue;
    StepSeries& series = series_[i];
    // A bar of another length inside an unfinished one is an evaluation's.
    if (bar_total_ != bar->total && series.distinct() > 2 && series.last() < bar_total_) {
      ++bars_left_out_;
      return;
    }
    bar_total_ = bar->total;
    series.open(bar->number, number_, std::nullopt);
    if (bar->time) series.set(LogQuantity::time, *bar->time);
    if (bar->elapsed) series.set(LogQuantity::elapsed, *bar->elapsed);
  }
}

void LogLines::read_fields(std::string_view line) {
  for (const LabelHit& hit : hits_) {
    for (const LabelMeaning& meaning : table_.meanings[hit.label]) {
      if (!meaning.trainer || !meaning.quantity || meaning.use == LabelUse::memory) continue;
      StepSeries& series = series_[*meaning.trainer];
      const bool here = meaning.use == LabelUse::field && opened_[*meaning.trainer];
      const bool behind = meaning.use == LabelUse::follow && !opened_[*meaning.trainer];
      if (!here && !behind && meaning.use != LabelUse::ahead) continue;
      const auto value = value_of(line, hit, meaning.unit);
      if (!value) continue;
      meaning.use == LabelUse::ahead ? series.set_ahead(*meaning.quantity, *value)
                                     : series.set(*meaning.quantity, *value);
    }
  }
}

void LogLines::read_memory(std::string_view line) {
  std::optional<LogMemory> report;
  const auto keep = [&] {
    if (report && memory_.size() < kMostMemory) memory_.push_back(*report);
    report.reset();
  };
  for (const LabelHit& hit : hits_) {
    for (const LabelMeaning& meaning : table_.meanings[hit.label]) {
      if (meaning.use != LabelUse::memory) continue;
      if (meaning.trainer && !opened_[*meaning.trainer]) continue;
      const auto value = value_of(line, hit, meaning.unit);
      if (!value) continue;
      const std::size_t at = std::size_t(*meaning.quantity) - kStepQuantities;
      const auto rank = rank_of(line, hit.begin);
      if (report && (report->bytes[at] || report->rank != rank)) keep();
      if (!report) report = {.line = number_, .rank = rank};
      report->bytes[at] = *value;
    }
  }
  keep();
}

/// Returns whether the line may be an argument behind dots.
bool LogLines::read_marks(std::string_view line) {
  evaluates_ = false;
  bool dots = false, rest_is_read = false;  // behind the first label that has it
  for (const LabelHit& hit : hits_) {
    for (const LabelMeaning& meaning : table_.meanings[hit.label]) {
      switch (meaning.use) {
        case LabelUse::evaluation:
          evaluates_ = true;
          for (StepSeries& series : series_) series.mark_evaluation();
          break;
        case LabelUse::checkpoint:
          for (StepSeries& series : series_) series.mark_checkpoint();
          break;
        case LabelUse::argument:
          if (const auto value = find_value(line, hit.end, printed_unit(""))) {
            add_argument(meaning.name, value->text);
          }
          break;
        case LabelUse::dump_begin:
          in_dump_ = true;
          return false;
        case LabelUse::dump_end:
          in_dump_ = false;
          return false;
        case LabelUse::dots:
          dots = true;
          break;
        case LabelUse::item: {
          if (std::exchange(rest_is_read, true)) break;
          const std::size_t colon = line.find(": ", hit.end);
          if (colon != line.npos) {
            add_argument(line.substr(hit.end, colon - hit.end), line.substr(colon + 2));
          }
          break;
        }
        case LabelUse::parameters:
          if (!std::exchange(rest_is_read, true)) read_parameters(line);
          break;
        case LabelUse::timers:
          if (!std::exchange(rest_is_read, true)) read_timers(line, hit.end);
          break;
        case LabelUse::timer_table:
          in_timers_ = true;
          break;
        case LabelUse::run_time:
          run_time_ = value_of(line, hit, printed_unit(""));
          break;
        case LabelUse::run_rate:
          if (const auto rate = value_of(line, hit, printed_unit("")); rate && run_time_) {
            add_run(*run_time_, *rate);
          }
          break;
        default:
          break;
      }
    }
  }
  return dots;
}

void LogLines::add_run(double seconds, double steps_per_second) {
  run_time_.reset();
  if (!(seconds > 0) || !(steps_per_second > 0)) return;
  run_seconds_ += seconds;
  run_steps_ += seconds * steps_per_second;
}

/// An argument is "NAME .... VALUE"; in a dump, names that are too long for dots have two blanks.
void LogLines::read_argument(std::string_view line) {
  std::size_t dots = line.find(in_dump_ ? " ..." : " .....");
  if (dots == line.npos && in_dump_) dots = line.find("  ", line.find_first_not_of(' ') + 1);
  if (dots == line.npos || dots == 0) return;
  std::size_t begin = dots;
  while (begin > 0 && is_name(line[begin - 1])) --begin;
  std::size_t value = line.find_first_not_of('.', dots + 1);
  if (begin == dots || value == line.npos || line[value] != ' ') return;
  value = line.find_first_not_of(' ', value);
  std::string_view text = value == line.npos ? std::string_view() : line.substr(value);
  // GPT-NeoX: whether the value is a default stands behind more dots.
  for (const std::string_view column : {"updated", "default"}) {
    if (!text.ends_with(column)) continue;
    text.remove_suffix(column.size());
    text = text.substr(0, text.find_last_not_of('.') + 1);
    break;
  }
  add_argument(line.substr(begin, dots - begin), text);
}

void LogLines::add_argument(std::string_view name, std::string_view value) {
  if (name.empty() || name.size() > 256 || arguments_.size() >= kMostArguments) return;
  value = value.substr(0, std::min(value.find_last_not_of(" \r") + 1, kLongestValue));
  const auto [place, added] =
      arguments_.try_emplace(std::string(name), LogArgument{std::string(value), number_});
  if (added || place->second.value == value) return;
  doubt(fmt::format("line {}: the argument {} is printed again, as '{}' after '{}'", number_,
                    printable(name), printable(value), printable(place->second.value)));
  place->second = {std::string(value), number_};
}

void LogLines::read_parameters(std::string_view line) {
  try {
    const std::size_t open = line.find('{'), close = line.rfind('}');
    if (open == line.npos || close == line.npos || close < open) return;
    const Json json = parse_json(line.substr(open, close - open + 1), "log");
    if (!json.contains("data") || !json["data"].is_object()) return;
    for (const auto& [key, value] : json["data"].items()) {
      const std::string_view name = key;
      add_argument(name.starts_with("cfg/") ? name.substr(4) : name,
                   value.is_string() ? value.get<std::string>() : value.dump());
    }
  } catch (const InputError& error) {
    doubt(fmt::format("line {}: the arguments are not read: {}", number_, error.what()));
  }
}

void LogLines::read_timers(std::string_view line, std::size_t at) {
  while (at < line.size()) {
    const std::size_t end = std::min(line.find('|', at), line.size());
    const std::string_view part = line.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = part.rfind(':');
    if (colon == part.npos) continue;
    const auto value = value_after(part, colon, printed_unit(""));
    if (value && value->value) add_timer(part.substr(0, colon), *value->value);
  }
}

/// Reads "    optimizer ......: (158.53, 166.36)", the least and the most of all ranks. Returns
/// whether it is one.
bool LogLines::read_timer_row(std::string_view line) {
  const std::size_t dots = line.find(" .."), open = line.find(": (");
  if (dots == line.npos || open == line.npos || open < dots) return false;
  const std::size_t comma = line.find(',', open);
  if (comma == line.npos) return false;
  const auto most = value_after(line, comma + 1, printed_unit(""));
  if (most && most->value) add_timer(line.substr(0, dots), *most->value);
  return true;
}

void LogLines::add_timer(std::string_view name, double milliseconds) {
  const std::size_t begin = name.find_first_not_of(' ');
  if (begin == name.npos || name.size() > 256) return;
  name = name.substr(begin, name.find_last_not_of(' ') + 1 - begin);
  auto place = timers_.find(name);
  if (place == timers_.end()) {
    if (timers_.size() >= kMostTimers) return;
    place = timers_.emplace(name, std::vector<double>()).first;
  }
  if (place->second.size() < kMostTimes) place->second.push_back(milliseconds / 1e3);
}

void LogLines::read_record(const std::vector<std::pair<std::string, std::string>>& record,
                           std::int64_t number) {
  number_ = number;
  std::vector<std::pair<LogQuantity, double>> values;
  std::optional<std::int64_t> step;
  for (const auto& [name, text] : record) {
    const LabelMeaning* meaning = column_meaning(name);
    if (meaning == nullptr) continue;
    const auto value = value_after(text, 0, meaning->unit);
    if (!value || !value->value) continue;
    if (meaning->quantity) values.emplace_back(*meaning->quantity, *value->value);
    const double whole = *value->value;
    if (meaning->use == LabelUse::step && whole >= 0 && whole < 1e15 &&
        whole == std::floor(whole)) {
      step = std::int64_t(whole);
    }
  }
  if (!step || values.empty()) return;
  const auto table = std::ranges::find_if(table_.trainers, &TrainerLines::table);
  const auto trainer = std::size_t(table - table_.trainers.begin());
  series_[trainer].open(*step, number, std::nullopt);
  for (const auto& [quantity, value] : values) series_[trainer].set(quantity, value);
}

/// Printed times tell more than running means, those more than none; then numbers, then steps.
double LogLines::score(std::size_t at) const {
  const TrainerLines& trainer = table_.trainers[at];
  const StepSeries& series = series_[at];
  const bool timed = series.has(LogQuantity::time) || series.has(LogQuantity::interval) ||
                     series.has(LogQuantity::steps_per_second);
  const double kind = timed ? (trainer.bars.empty() ? 2 : 1) : 0;
  return kind * 4e15 + (trainer.counted ? 0 : 2e15) + double(series.distinct());
}

TrainingLog LogLines::finish(const std::string& file) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < series_.size(); ++i) {
    if (series_[i].distinct() > 0 && (!best || score(i) > score(*best))) best = i;
  }
  if (!best) {
    std::string names;
    for (const TrainerLines& trainer : table_.trainers) names += "; " + trainer.name;
    throw InputError(file, "", "no line is a step of a trainer that is known: " + names.substr(2));
  }
  TrainingLog log;
  log.trainer = table_.trainers[*best].name;
  series_[*best].finish(log);
  log.memory = std::move(memory_);
  log.arguments = std::move(arguments_);
  for (auto& [name, seconds] : timers_) {
    const auto count = std::int64_t(seconds.size());
    const auto phase = table_.phases.find(name);
    log.timers.push_back(
        {name, Seconds(quantile_of(std::move(seconds), 0.5)), count,
         phase == table_.phases.end() ? std::nullopt : std::optional(phase->second)});
  }
  if (run_steps_ > 0) log.mean_step = Seconds(run_seconds_ / run_steps_);
  log.doubts = std::move(doubts_);
  if (!table_.trainers[*best].doubt.empty()) log.doubts.push_back(table_.trainers[*best].doubt);
  if (bars_left_out_ > 0) {
    log.doubts.push_back(fmt::format(
        "{} states of progress bars of another length, inside the training's, are left out",
        bars_left_out_));
  }
  tell_times(log, !table_.trainers[*best].bars.empty());
  return log;
}

}  // namespace plimsoll
