// Starting files of frameworks: a built-in one, of which the file then states what is different.
#include "base/error.h"
#include "base/json.h"
#include "models/framework/framework.h"
#include "planner/init/init.h"

namespace plimsoll {

std::optional<Question> next_framework_question(const Answers& answers) {
  if (!answers.contains("based-on")) {
    return Question{"based-on", "built-in framework that it is like: " + known_frameworks()};
  }
  const std::string& base = framework_by_name(answers.at("based-on")).name;
  if (!answers.contains("name")) {
    return Question{"name", "name of the framework", "my-" + base,
                    [](const std::string& name) -> std::string {
                      return find_framework(name) == nullptr ? "" : "a built-in one has this name";
                    }};
  }
  return std::nullopt;
}

std::string new_framework_text(const Answers& answers) {
  const std::string& name = answers.at("name");
  if (find_framework(name) != nullptr) {
    throw UsageError("--name " + name + ": a built-in framework has this name");
  }
  return json_text({{"name", name}, {"based_on", framework_by_name(answers.at("based-on")).name}});
}

}  // namespace plimsoll
