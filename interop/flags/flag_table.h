// Flag tables say how frameworks spell jobs and strategies: as flags of their command lines, or as
// settings of their configuration files. They are the files of models/presets/flags, and
// docs/reference/flags.md describes their rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "interop/documents/document.h"

namespace plimsoll {

/// A FlagCondition is "KEY=VALUE" or, where it differs, "KEY!=VALUE". The value is a text, or
/// "{KEY}" for the value of another field.
struct FlagCondition {
  std::string key, value;
  bool differs = false;
};

/// A FlagRow spells what its conditions state, or implies it.
struct FlagRow {
  enum class Kind {
    flag,     ///< written if the conditions hold; when it is read, they become true
    alias,    ///< a flag that is only read
    implied,  ///< the conditions become true if none of the options `words` is given
  };
  Kind kind = Kind::flag;
  std::vector<FlagCondition> when = {};
  /// The option with its values. "{KEY}" and "{KEY:UNIT}" stand for the value of a field, "{}" for
  /// any value. Of an implied row: options, which may be none.
  std::vector<std::string> words = {};
  Json value = {};        ///< in documents: the value with its type, of which words has the texts
  bool shown = false;     ///< whether the line of `planner plan` has it
  std::string note = {};  ///< what a reader of the flag assumes
};

/// A FlagException is about options or fields with these names, if the conditions hold.
struct FlagException {
  std::vector<FlagCondition> when;
  std::vector<std::string> names;
  std::string because;
};

/// A FlagTarget is what `planner export --to NAME` writes for.
struct FlagTarget {
  std::string name, version;
  std::string program;   ///< the script that takes the flags or the document
  bool exported = true;  ///< false: files are read, and none is written
  std::string unstated;  ///< what a document of the target states beside a plan, in words
  /// what starts the program on a node, with "{nodes}" for their number; empty: torchrun
  std::string launcher;
  bool by_version = false;  ///< it is written only where its version is asked for
  /// Settings of a trial: its length, for which "{steps}" stands, and a line of log for each step.
  std::vector<std::pair<std::string, Json>> trial;
};

/// A FileMark recognizes a document that has all texts of one list, and none of the other.
struct FileMark {
  std::vector<std::string> all_of, none_of;
};

/// A NextTable goes on with what a document of a table leaves out. It reads the document that the
/// setting `file_key` names, or, without that setting, an empty one.
struct NextTable {
  std::string target;  ///< name of the table's target
  std::string file_key;
  bool always = true;  ///< false: without that setting, documents need no other table
};

/// A NamedConfiguration is what a program knows by the values of some options.
struct NamedConfiguration {
  std::vector<std::vector<std::string>> options;  ///< {"--config", "small"}
  /// Keys with the texts of their values, as the configuration has them.
  std::vector<std::pair<std::string, std::vector<std::string>>> settings;
};

/// SettingOptions say how settings are spelt as options after a named configuration, whose values
/// they replace: "--KEY VALUE", for a switch "--KEY" and "--SECTION.no-NAME".
struct SettingOptions {
  std::string rows_of;                    ///< file whose rows state the settings, too
  std::vector<NamedConfiguration> named;  ///< all have the same options
  std::vector<std::string> chosen_by;     ///< keys that a plan and its configuration agree in
  std::vector<std::string> only_by_name;  ///< keys that no option sets; "a.*" are all that begin so
  std::vector<std::string> switches;      ///< keys that take no value
  std::vector<std::pair<std::string, std::string>> variables;  ///< name -> the option that has it
};

struct FlagTable {
  std::vector<std::string> frameworks;  ///< the frameworks that take these flags
  std::optional<FlagTarget> target;
  std::optional<DocumentSyntax> document;  ///< nothing: the table has flags of a command line
  std::vector<FileMark> recognized_by;     ///< one of these is enough
  std::optional<NextTable> next;
  /// Setting that names the model, of which a document states what is trained; empty: none does.
  std::string model_key;
  std::vector<FlagRow> rows;         ///< in the order in which they are written and read
  std::vector<FlagRow> environment;  ///< rows whose one word is "NAME=VALUE"
  /// Options that no job, strategy or framework states. A name may end with "*".
  std::vector<FlagException> refused;
  /// Options that say nothing of model, memory and time. A name may end with "*".
  std::vector<std::string> harmless;
  std::string without_model;  ///< what a reader says of a file that states no vocabulary
  std::string unset;          ///< a value that leaves a key to the program, such as "auto"
  /// Fields that the program has from elsewhere than its flags or its file: a plan's values of them
  /// are not lost.
  std::vector<FlagException> beside;
  std::optional<SettingOptions>
      options;  ///< settings are options of a command line, in no document
};

/// Returns whether files of the table describe a model.
bool states_model(const FlagTable& table);

/// Returns all tables, ordered by the names of their files.
const std::vector<FlagTable>& flag_tables();
/// Returns the table whose flags `planner plan` shows for the framework of that name, or null where
/// there is none.
const FlagTable* flag_table_of(std::string_view framework);
/// Returns the table for `planner export --to TARGET`, or null where there is none. Without a
/// version it is that of the target's first table.
const FlagTable* flag_table_for(std::string_view target, std::string_view version = "");
/// Returns the versions that are written for a target.
std::vector<std::string> versions_for(std::string_view target);

/// Returns whether a name is the pattern, or begins with what is in front of the pattern's "*".
bool matches(std::string_view pattern, std::string_view name);

/// Returns the text as one word of a shell, in quotes where it needs them.
std::string shell_word(std::string_view text);
/// Returns the text with '_' for all characters but letters, digits, '.', '_' and '-'.
std::string as_one_word(std::string_view text);

}  // namespace plimsoll
