// Starts planner-run and planner-calibrate. They link the runtime, which planner must not.
#include "planner/terminal/exec_beside.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace plimsoll {

void exec_beside(const std::string& program, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("cannot find the running executable: " + error.message());
  const std::string path = (self.parent_path() / program).string();

  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  throw EnvironmentError(fmt::format("cannot start {}: {}", path, std::strerror(errno)));
}

}  // namespace plimsoll
