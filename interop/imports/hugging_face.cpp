// A config.json of Hugging Face transformers becomes a Job here.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "interop/imports/architecture.h"
#include "interop/imports/config_fields.h"
#include "interop/imports/hugging_face_keys.h"
#include "interop/imports/model_shape.h"
#include "interop/imports/readers.h"
#include "models/job/job_words.h"

namespace plimsoll {
namespace {

// These are assumed where nobody states them, since no config.json says them. The sequence is LLaMA
// 2's and the batch BERT's (models/presets/jobs); neither is a claim on the model at hand, and
// notes say so.
constexpr std::int64_t kUsualSequence = 4096;
constexpr std::int64_t kUsualBatch = 256;
constexpr DType kUsualPrecision = DType::bf16;

/// The objects of a multimodal file that hold its model of text.
constexpr const char* kTextTowers[] = {"text_config", "llm_config", "language_config",
                                       "thinker_config"};

/// A TextModel is the object of the file that describes the model of text.
struct TextModel {
  const Json* object = nullptr;
  std::string pointer;          ///< of the object; empty: the whole file
  const Json* whole = nullptr;  ///< the file
  bool is_part() const { return object != whole; }
};

TextModel text_of(const Json& whole, const std::string& file) {
  if (!whole.is_object()) throw InputError(file, "", "found no object; a config.json is one");
  TextModel text = {&whole, "", &whole};
  const auto is_in = [&](const char* tower) {
    const auto found = text.object->find(tower);
    return found != text.object->end() && found->is_object();
  };
  // A tower may be in another one (Qwen2.5-Omni).
  for (;;) {
    const auto tower = std::ranges::find_if(kTextTowers, is_in);
    if (tower == std::end(kTextTowers)) return text;
    text.pointer = json_pointer(text.pointer, *tower);
    text.object = &text.object->at(*tower);
  }
}

/// Returns what the file calls its model: the model_type, else the first of its architectures.
std::string model_of(const Json& object) {
  std::string name = text_at(object, "model_type");
  if (!name.empty()) return name;
  const auto classes = object.find("architectures");
  if (classes == object.end() || !classes->is_array() || classes->empty()) return "";
  return classes->front().is_string() ? classes->front().get<std::string>() : "";
}

const Architecture* architecture_of(const std::string& model) {
  const Architecture* found = architecture_of_type(model);
  return found != nullptr ? found : architecture_of_class(model);
}

const Architecture* forced(const std::string& family) {
  if (const Architecture* found = architecture_of_type(family)) return found;
  throw UsageError(fmt::format("--family {}: unknown; known are {}", printable(family),
                               fmt::join(supported_architectures(), ", ")));
}

/// Returns an error's text without the name of the file.
std::string without_file(const InputError& error) {
  return std::string(error.what()).substr(error.file().size() + std::string_view(": at ").size());
}

/// Returns its text without the place, either.
std::string message_of(const InputError& error) {
  const std::size_t place = error.pointer().empty() ? 1 : error.pointer().size();
  return without_file(error).substr(place + std::string_view(": ").size());
}

// --- the step, which no config.json describes ---

std::string precision_word(DType type) {
  return type == DType::f32 ? "fp32" : type == DType::f16 ? "fp16" : "bf16";
}

void set_sequence(ConfigFields& fields, const Architecture& known, const ImportGiven& given,
                  Imported& imported) {
  Job& job = *imported.job;
  const std::string& key = known.key("positions");
  const std::int64_t positions = fields.size(key);
  if (job.family == Family::llama) {
    job.sequence = given.sequence.value_or(std::min(positions, kUsualSequence));
  } else {
    job.sequence = given.sequence.value_or(positions);
    if (job.sequence > positions) {
      fields.fail(key, fmt::format("a sequence of {} tokens needs as many rows of positions",
                                   job.sequence));
    }
    if (job.sequence < positions) {
      imported.notes.push_back(
          fmt::format("{} {}: a job has a row for each of its {} tokens, {} parameters fewer", key,
                      positions, job.sequence, (positions - job.sequence) * job.hidden));
    }
  }
  if (!given.sequence) {
    imported.notes.push_back(fmt::format("sequence {} is assumed ({} {}); --sequence states it",
                                         job.sequence, key, positions));
  }
}

/// The type of a file's weights need not be that of training (float16 of Llama 2).
void note_precision(const TextModel& source, Imported& imported) {
  const std::string word = precision_word(imported.job->precision);
  for (const Json* object : {source.object, source.whole}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      const std::string type = text_at(*object, key);
      if (type.empty()) continue;
      if (type == "bfloat16" && imported.job->precision == DType::bf16) return;
      imported.notes.push_back(fmt::format(
          "{} {} is the type of the file's weights; training is taken to be in {}; --precision "
          "states it",
          key, printable(type), word));
      return;
    }
  }
  imported.notes.push_back(fmt::format("precision {} is assumed; --precision states it", word));
}

void set_step(const TextModel& source, const ImportGiven& given, Imported& imported) {
  Job& job = *imported.job;
  job.global_batch = given.global_batch.value_or(kUsualBatch);
  job.precision = given.precision.value_or(kUsualPrecision);
  if (job.precision == DType::f16) job.loss_scale = LossScale{};
  if (!given.global_batch) {
    imported.notes.push_back(fmt::format(
        "global batch {} sequences is assumed; --global-batch states it", job.global_batch));
  }
  if (!given.precision) note_precision(source, imported);
  imported.notes.push_back(
      "optimizer AdamW with the usual settings of a job file is assumed; edit the job file for another");
}

// --- notes ---

void note_defaults(const ConfigFields& fields, const Architecture& known, Imported& imported) {
  if (fields.assumed().empty()) return;
  imported.notes.push_back(
      fmt::format("not in the file, taken from the defaults of {} in transformers: {}", known.name,
                  fmt::join(fields.assumed(), ", ")));
}

void note_keys(ConfigFields& fields, const Architecture* known, Imported& imported) {
  for (const KeyRule& noted : noted_keys()) {
    for (const std::string& key : noted.keys) {
      if (!fields.has(key) || noted.fine(fields.raw(key)) || (known && is_known(*known, key)))
        continue;
      const Json& value = fields.raw(key);
      imported.notes.push_back(
          fmt::format("{}{}: {}", key, value.is_number() ? " " + value.dump() : "", noted.message));
    }
  }
}

/// Notes what every model of the architecture computes and no key of the tables above states.
void note_left_out(ConfigFields& fields, const Architecture& known, Imported& imported) {
  for (const LeftOut& left_out : known.left_out) {
    if (!left_out.key.empty() && (!fields.has(left_out.key) || is_off(fields.raw(left_out.key))))
      continue;
    imported.notes.push_back("a job leaves out: " + left_out.note);
  }
}

/// A file may be of a model with another head, a classifier's say.
void note_head(const TextModel& source, const Architecture& known, Imported& imported) {
  const auto classes = source.object->find("architectures");
  if (classes == source.object->end() || !classes->is_array() || classes->empty()) return;
  const Json& first = classes->front();
  if (!first.is_string()) return;
  const std::string name = first.get<std::string>();
  if (std::ranges::find(known.classes, name) != known.classes.end()) return;
  imported.notes.push_back(
      fmt::format("architectures {}: a job has the head of a language model", printable(name)));
}

/// The count of BERT is that of the model with its pooler, and the head is a smaller one.
void note_masked_head(Imported& imported) {
  const Job& job = *imported.job;
  if (job.family != Family::bert) return;
  imported.notes.push_back(
      fmt::format("parameters are those of the model with its pooler; a job leaves out the norm "
                  "and the output bias of the masked-LM head ({} parameters)",
                  2 * job.hidden + job.vocab));
}

void list_unread(const ConfigFields& fields, const TextModel& source, Imported& imported) {
  const auto is_noted = [](const std::string& key) {
    return std::ranges::any_of(noted_keys(), [&](const KeyRule& noted) {
      return std::ranges::find(noted.keys, key) != noted.keys.end();
    });
  };
  const std::string part = source.is_part() ? source.pointer.substr(1) + "/" : "";
  for (const auto& [key, value] : source.object->items()) {
    if (!fields.is_read(key) && !is_silent(key)) imported.unread.push_back(part + printable(key));
    for (const std::string& inner : fields.unread_members(key))
      if (!is_silent(inner)) imported.unread.push_back(part + printable(key + "/" + inner));
  }
  if (!source.is_part()) return;
  for (const auto& [key, value] : source.whole->items()) {
    const bool tower = (source.pointer + "/").starts_with(json_pointer("", key) + "/");
    if (!tower && !is_silent(key) && !is_noted(key) && key != "tie_word_embeddings")
      imported.unread.push_back(printable(key));
  }
}

// --- the whole ---

std::string name_of(const ImportGiven& given, const TextModel& source, const std::string& file,
                    const Architecture& known) {
  if (!given.name.empty()) return given.name;
  const std::filesystem::path hub = text_at(*source.whole, "_name_or_path");
  const std::filesystem::path path = file;
  const std::string names[] = {hub.filename().string(), path.stem() == "config"
                                                            ? path.parent_path().filename().string()
                                                            : path.stem().string()};
  for (const std::string& name : names) {
    if (!name.empty() && name != "." && name != "..") return printable(name);
  }
  return known.name;
}

/// Runs the checks of job files. A fault is one of the key that states the size.
void check_at_keys(const Job& job, const ConfigFields& fields, const Architecture& known) {
  try {
    check_job(job, fields.file());
  } catch (const InputError& error) {
    const std::string& pointer = error.pointer();
    const std::string message = message_of(error);
    const std::string size = pointer.empty() ? "" : pointer.substr(1);
    const auto key = known.keys.find(size);
    if (key != known.keys.end())
      throw InputError(fields.file(), fields.place(key->second), message);
    throw InputError(fields.file(), fields.pointer(),
                     size.empty() ? message : fmt::format("{} of the job: {}", size, message));
  }
}

/// Reads what stands beside the text tower of a multimodal file.
void read_around(const TextModel& source, const std::string& file, Imported& imported) {
  imported.notes.push_back(fmt::format("{}: the model of text alone is read, of a multimodal one",
                                       source.pointer.substr(1)));
  ConfigFields whole(*source.whole, Json::object(), file, "");
  // Where the whole says whether the head is tied, the tower has no say.
  if (whole.has("tie_word_embeddings"))
    imported.job->tied_embeddings = whole.boolean("tie_word_embeddings");
  note_keys(whole, nullptr, imported);
}

/// "rope_gptj" of Cohere's files pairs other columns than "rope", at the same cost.
void check_positions(ConfigFields& fields, Family family) {
  constexpr const char* kKey = "position_embedding_type";
  if (!fields.has(kKey)) return;
  const std::string positions = fields.text(kKey);
  const bool rotary = family == Family::llama;
  if (rotary ? positions.starts_with("rope") : positions == "absolute") return;
  fields.fail(kKey, fmt::format("\"{}\" is required here", rotary ? "rope" : "absolute"));
}

Imported read_job_of(const TextModel& source, const Architecture& model, const std::string& file,
                     const ImportGiven& given) {
  ConfigFields fields(*source.object, model.defaults, file, source.pointer);
  const Architecture known = with_aliases(fields, model);
  if (const auto faults = key_faults(fields, known); !faults.empty())
    fields.fail(faults.front().key, faults.front().message);
  Imported imported;
  Job& job = imported.job.emplace();
  job.name = name_of(given, source, file, known);
  read_shape(fields, known, job);
  if (source.is_part()) read_around(source, file, imported);
  read_factors(fields, known, job);
  read_epsilon(fields, job);
  read_dropout(fields, known, given, job);
  check_positions(fields, job.family);
  set_sequence(fields, known, given, imported);
  if (job.family == Family::llama) read_rotary(fields, known, imported);
  read_windows(fields, known, job);
  set_step(source, given, imported);
  check_at_keys(job, fields, known);
  note_defaults(fields, known, imported);
  note_keys(fields, &known, imported);
  note_left_out(fields, known, imported);
  if (job.experts && job.experts->balance_layers)
    imported.notes.push_back(
        "output_router_logits: one auxiliary loss is over all layers of a micro-batch; "
        "balance_sequences of experts states the sequences of one, and pp is 1");
  note_head(source, known, imported);
  note_masked_head(imported);
  list_unread(fields, source, imported);
  return imported;
}

// --- models that are not known ---

/// Joins the first texts, and counts the others.
std::string first_of(const std::vector<std::string>& texts) {
  const std::size_t shown = std::min<std::size_t>(texts.size(), 3);
  const std::string rest =
      shown < texts.size() ? fmt::format(" and {} more", texts.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(texts.begin(), texts.begin() + shown, ", "), rest);
}

/// A Reading says what one architecture makes of a file.
struct Reading {
  const Architecture* as = nullptr;
  std::vector<std::string> faults, unread;
  bool elsewhere = false;   ///< the type is of text towers, and the file is none
  std::size_t assumed = 0;  ///< keys that the library alone states
  bool plain = false;       ///< nothing changes the layers, or scales tensors, but the keys
  bool namesake = false;    ///< the architecture has the name of its family
  std::size_t alike = 0;    ///< keys that have the library's values for this architecture

  auto rank() const {
    return std::tuple(faults.size(), unread.size(), elsewhere, assumed, !plain, !namesake,
                      -std::int64_t(alike));
  }
};

/// Returns the keys that a file of this architecture must state: others may have the library's
/// values.
std::vector<std::string> needed_keys(const Architecture& known) {
  std::vector<std::string> keys;
  for (const char* size : {"layers", "hidden", "heads", "vocab", "latent_kv_rank"}) {
    if (!known.key(size).empty()) keys.push_back(known.key(size));
  }
  if (known.experts) keys.push_back(known.experts->keys.find("count")->second);
  return keys;
}

/// Returns the faults of keys and of sizes, one for each message.
std::vector<std::string> faults_as(ConfigFields& fields, const Architecture& model) {
  std::vector<std::string> faults, order;
  std::map<std::string, std::vector<std::string>> keys_of;
  const auto add = [&](const std::string& key, const std::string& message) {
    if (keys_of[message].empty()) order.push_back(message);
    keys_of[message].push_back(key);
  };
  try {
    const Architecture known = with_aliases(fields, model);
    for (const KeyFault& fault : key_faults(fields, known)) add(fault.key, fault.message);
    for (const std::string& key : needed_keys(known)) {
      if (!fields.stated().contains(key)) add(key, "the file does not state it");
    }
    for (const auto& [key, value] : fields.stated().items()) {
      if (is_usual_key(key) && !is_known(known, key)) add(key, "the type has no such key");
    }
    Job job;
    read_shape(fields, known, job);
  } catch (const InputError& error) {
    faults.push_back(without_file(error));
  }
  for (const std::string& message : order)
    faults.push_back(fmt::format("{} ({})", first_of(keys_of[message]), message));
  return faults;
}

Reading reading_as(const Architecture& model, const TextModel& source, const std::string& file,
                   const ImportGiven& given) {
  Reading reading;
  reading.as = &model;
  reading.plain = model.always == Job{} && model.factors.empty() && model.left_out.empty() &&
                  model.key("growth_factor").empty();
  reading.namesake = model.name == kFamilies[std::size_t(model.family)];
  // The library's types of text towers end so.
  reading.elsewhere = model.name.ends_with("_text") && !source.is_part();
  const Json& stated = *source.object;
  for (const auto& [key, value] : model.defaults.items()) {
    if (key == "rms_norm_eps" || key == "router_aux_loss_coef") continue;  // no shape
    const auto found = stated.find(key);
    reading.assumed += found == stated.end() ? 1 : 0;
    reading.alike += found != stated.end() && *found == value ? 1 : 0;
  }
  ConfigFields fields(stated, model.defaults, file, source.pointer);
  reading.faults = faults_as(fields, model);
  if (!reading.faults.empty()) return reading;
  try {
    reading.unread = read_job_of(source, model, file, given).unread;
  } catch (const InputError& error) {
    reading.faults.push_back(without_file(error));
  }
  return reading;
}

Reading nearest_reading(const TextModel& source, const std::string& file,
                        const ImportGiven& given) {
  std::optional<Reading> nearest;
  for (const Architecture& model : architectures()) {
    Reading next = reading_as(model, source, file, given);
    if (!nearest || next.rank() < nearest->rank()) nearest = std::move(next);
  }
  INVARIANT(nearest, "some architecture is supported");
  return *nearest;
}

/// Returns the way on for a model whose type is not known: what the nearest type makes of the file.
std::string nearest_words(const Reading& nearest) {
  if (!nearest.faults.empty()) {
    return fmt::format("with --family {}, the nearest, it is refused: {}", nearest.as->name,
                       fmt::join(nearest.faults, "; "));
  }
  return fmt::format(
      "--family {} reads it as the nearest known type, {}; others are {}", nearest.as->name,
      nearest.unread.empty() ? "which has all of its keys" : "without " + first_of(nearest.unread),
      fmt::join(supported_architectures(), ", "));
}

/// Refuses a file by the name of its model if no job states it, or if the type is not known.
void check_model(const TextModel& source, const std::string& model, const Architecture* known,
                 const std::string& file, const ImportGiven& given) {
  const char* key = text_at(*source.object, "model_type").empty() ? "architectures" : "model_type";
  const KeyRule* rule = given.family.empty() && known == nullptr ? type_rule(model) : nullptr;
  const std::string others = other_layers(*source.object);
  if (known != nullptr && others.empty()) return;
  const char* unknown = rule || architecture_of(model) ? "" : ", an unknown type";
  const std::string found = model.empty()
                                ? "found neither model_type nor architectures"
                                : fmt::format("found \"{}\"{}", printable(model), unknown);
  std::string reason = rule != nullptr ? rule->message : others;
  if (reason.empty()) reason = nearest_words(nearest_reading(source, file, given));
  throw InputError(file, json_pointer(source.pointer, key), fmt::format("{}; {}", found, reason));
}

}  // namespace

bool looks_like_hugging_face(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == text.npos || text[first] != '{') return false;
  constexpr std::string_view keys[] = {"\"model_type\"", "\"architectures\"", "\"text_config\"",
                                       "\"num_hidden_layers\"", "\"n_layer\""};
  return std::ranges::any_of(keys,
                             [&](std::string_view key) { return text.find(key) != text.npos; });
}

std::vector<std::string> joined_products(std::string_view text) {
  if (!looks_like_hugging_face(text)) return {};
  const Json whole = parse_python_json(text, "config.json");
  const Architecture* known = architecture_of(model_of(*text_of(whole, "config.json").object));
  return known == nullptr ? std::vector<std::string>() : known->joined;
}

Imported read_hugging_face(std::string_view text, const std::string& file,
                           const ImportGiven& given) {
  const Json whole = parse_python_json(text, file);
  const TextModel source = text_of(whole, file);
  const std::string model = model_of(*source.object);
  const Architecture* known = given.family.empty() ? architecture_of(model) : forced(given.family);
  check_model(source, model, known, file, given);
  Imported imported;
  try {
    imported = read_job_of(source, *known, file, given);
  } catch (const InputError& error) {
    const std::string name = printable(model.empty() ? known->name : model);
    throw InputError(file, error.pointer(),
                     fmt::format("{} (model_type \"{}\")", message_of(error), name));
  }
  if (!given.family.empty() && architecture_of(model) != known) {
    imported.notes.insert(imported.notes.begin(),
                          fmt::format("read as {} because of --family; the file states \"{}\"",
                                      known->name, printable(model)));
  }
  return imported;
}

}  // namespace plimsoll
