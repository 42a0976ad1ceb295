// Functions that the executables' command lines share.
#include "base/command_line.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

#include "base/file.h"
#include "base/json.h"

namespace plimsoll {
namespace {

/// Messages are one line, whatever a parser or a library put into them.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// Whether a terminal acts on the bytes at the begin of a character: controls but the end of a line
/// and tabs, C1 controls in UTF-8 (U+0080 to U+009F) or as a byte of their own, and what overrides
/// the reading direction (U+202A to U+202E, U+2066 to U+2069). Returns how many bytes do.
std::size_t controls_at(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = byte(0), second = byte(1), third = byte(2);
  if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f) return 1;
  if (first >= 0x80 && first < 0xa0) return 1;
  if (first == 0xc2 && second >= 0x80 && second < 0xa0) return 2;
  const bool overrides = first == 0xe2 && ((second == 0x80 && third >= 0xaa && third <= 0xae) ||
                                           (second == 0x81 && third >= 0xa6 && third <= 0xa9));
  return overrides ? 3 : 0;
}

/// Returns how many bytes the character at the begin of `text` has, as far as they are there.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t most = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  std::size_t bytes = 1;
  while (bytes < std::min(most, text.size()) &&
         (static_cast<unsigned char>(text[bytes]) & 0xc0u) == 0x80u)
    ++bytes;
  return bytes;
}

// The name of the program that runs, and what ended processes before.
std::string_view program;
std::terminate_handler terminate_before = nullptr;

/// Allocates nothing.
void say_out_of_memory() {
  write_all(STDERR_FILENO, program);
  write_all(STDERR_FILENO, ": out of memory: the machine has no more for it\n");
}

/// Whether std::terminate is called since there is no memory: for what an exception holds, or
/// for a destructor, as those of JSON, which cannot throw.
bool ends_for_lack_of_memory() {
  const std::type_info* const thrown = abi::__cxa_current_exception_type();
  if (thrown != nullptr) return *thrown == typeid(std::bad_alloc);
  void* const memory = std::malloc(1024);
  std::free(memory);
  return memory == nullptr;
}

/// Is std::terminate.
[[noreturn]] void end_process() {
  if (ends_for_lack_of_memory()) {
    say_out_of_memory();
    ::_exit(int(ExitCode::environment));
  }
  terminate_before();
  std::abort();
}

void handle_lack_of_memory() {
  const std::terminate_handler before = std::set_terminate(end_process);
  if (before != end_process) terminate_before = before;
}

}  // namespace

std::string without_controls(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const std::size_t controls = controls_at(rest);
    const std::size_t bytes = controls == 0 ? character_bytes(rest) : controls;
    safe += controls == 0 ? rest.substr(0, bytes) : "?";
    i += bytes;
  }
  return safe;
}

// A caller's lambda that captures much comes by std::cref: to make a function of it takes memory,
// and only from here on that may fail.
int run_program(std::string_view name, const std::function<ExitCode()>& body) {
  program = name;
  handle_lack_of_memory();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of a file's size fails with EFBIG then
  try {
    return int(body());
  } catch (const std::bad_alloc& error) {
    say_out_of_memory();
    return int(exit_code(error));
  } catch (const std::exception& error) {
    print_note(fmt::format("{}: {}\n", name, one_line(error.what())));
    return int(exit_code(error));
  }
}

void print_result(std::string_view text) {
  int error = std::fflush(stdout) == 0 ? 0 : errno;
  if (error == 0) error = write_all(STDOUT_FILENO, without_controls(text));
  if (error == 0) return;
  throw EnvironmentError(fmt::format("cannot write to standard output: {}", std::strerror(error)));
}

void print_note(std::string_view text) {
  const std::string safe = without_controls(text);
  std::fwrite(safe.data(), 1, safe.size(), stderr);
  std::fflush(stderr);
}

std::string refuse_integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // CLI11 would read a leading zero as octal.
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  const bool octal = digits.size() > 1 && digits[0] == '0';
  const bool whole = error == std::errc() && stop == end && !octal;
  if (whole && value >= least && value <= most) return "";
  return fmt::format("found {}; an integer from {} to {} is required", printable(text), least,
                     most);
}

std::string refuse_number(std::string_view text, double least, double most) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) return "";
  return fmt::format("found {}; a number from {} to {} is required", printable(text), least, most);
}

void check_output(std::string_view flag, const std::string& file,
                  std::span<const std::string> others) {
  if (file.empty()) return;
  for (const std::string& other : others) {
    if (other.empty() || !same_file(file, other)) continue;
    throw UsageError(
        fmt::format("{} {}: this command uses the same file as {}", flag, file, other));
  }
  check_writable(file);
}

void refuse_word(std::string_view where, const std::string& word,
                 std::span<const std::string> flags, std::span<const std::string> commands) {
  const std::string name = word.substr(0, word.find('='));
  const bool is_flag = name.size() > 1 && name[0] == '-';
  const char* kind = is_flag ? "flag" : commands.empty() ? "argument" : "command";
  const std::span<const std::string> all = is_flag ? flags : commands;
  std::string near = nearest(name, all);
  const std::string letters = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  for (const std::string& one : all) {  // "--batch" of "--global-batch", "paln" of "plan"
    const bool is_part = letters.size() > 2 && one.find(letters) != std::string::npos;
    if (near.empty() && (is_part || std::ranges::is_permutation(name, one))) near = one;
  }
  std::string known;
  if (!near.empty()) {
    known = fmt::format("; did you mean {}?", near);
  } else {
    constexpr std::size_t kShort = 60;
    for (const std::string& one : all) known += " " + one;
    if (!known.empty())
      known = known.size() > kShort ? "; --help prints all" : "; known are" + known;
  }
  throw UsageError(fmt::format("{}{}unknown {} {}{}", where, where.empty() ? "" : ": ", kind,
                               printable(name), known));
}

void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    throw UsageError(fmt::format("{}: the value is empty", word.substr(0, word.size() - 1)));
  }
}

}  // namespace plimsoll
