# Files that shells and man read are written by the programs from their own commands and options: manual pages
# and completions.
set(shell_folder ${PROJECT_BINARY_DIR}/shell)
add_custom_command(OUTPUT ${shell_folder}/planner.1
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${shell_folder}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_folder}
  COMMAND planner-run --man > ${shell_folder}/planner-run.1
  COMMAND planner-calibrate --man > ${shell_folder}/planner-calibrate.1
  COMMAND planner completion bash > ${shell_folder}/planner.bash
  COMMAND planner completion zsh > ${shell_folder}/_planner
  COMMAND planner completion fish > ${shell_folder}/planner.fish
  COMMAND planner man -o ${shell_folder}
  DEPENDS planner planner-run planner-calibrate VERBATIM)
add_custom_target(shell_files ALL DEPENDS ${shell_folder}/planner.1)
