// The command line of mpirun or srun is made and executed.
#include "runtime/command/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/error.h"

namespace plimsoll {

std::vector<std::string> launch_command(const std::string& launcher, std::int64_t ranks,
                                        const std::string& program,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command;
  std::istringstream words(launcher);
  for (std::string word; words >> word;) command.push_back(word);
  const std::string name =
      command.empty() ? "" : std::filesystem::path(command[0]).filename().string();
  if (name != "mpirun" && name != "srun") {
    throw UsageError(
        fmt::format("--launcher: found \"{}\"; local, mpirun and srun are allowed, the last two "
                    "with options of their own behind them",
                    launcher));
  }
  command.insert(command.end(), {"-n", std::to_string(ranks), program});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void launch(const std::string& launcher, std::int64_t ranks, const std::string& name,
            const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw EnvironmentError("cannot find the running executable: " + error.message());
  const std::string program = (self.parent_path() / name).string();
  const std::vector<std::string> command = launch_command(launcher, ranks, program, arguments);
  if (!std::filesystem::exists(program)) {
    throw EnvironmentError(program + " is missing: this build found no MPI");
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw EnvironmentError(fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
}

std::vector<std::string> without_launcher(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--launcher") {
      ++i;
    } else if (!word.starts_with("--launcher=")) {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace plimsoll
