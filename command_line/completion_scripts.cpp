// The scripts that make bash, zsh and fish ask planner for the words that may come next.
#include "base/error.h"
#include "command_line/completion.h"

namespace plimsoll {
namespace {

constexpr const char* kBash =
    R"script(# Completion of planner in bash. Load it with: source <(planner completion bash)

_planner() {
  # bash splits a line at = and :, too, but planner gets whole words. Pieces without a blank between
  # them are one word.
  local line=${COMP_LINE:0:COMP_POINT} at=0 piece glued i
  local -a words=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    glued=$((i > 0))
    while [[ ${line:at:1} == [[:space:]] ]]; do
      glued=0
      at=$((at + 1))
    done
    piece=${COMP_WORDS[i]}
    ((i == COMP_CWORD)) && piece=${line:at}
    at=$((at + ${#piece}))
    if ((glued)); then
      words[${#words[@]} - 1]+=$piece
    else
      words+=("$piece")
    fi
  done

  # The text that bash replaces begins behind the last = of the word.
  local last=${words[${#words[@]} - 1]} cut= word reply
  [[ $COMP_WORDBREAKS == *=* && $last == *=* ]] && cut=${last%"${last##*=}"}
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [[ $word == :files ]]; then
      compopt -o filenames 2> /dev/null
      while IFS= read -r reply; do
        COMPREPLY+=("$reply")
      done < <(compgen -f -- "${last#"$cut"}")
    else
      COMPREPLY+=("${word#"$cut"}")
    fi
  done < <("${words[0]/#\~/$HOME}" complete -- "${words[@]:1}" 2> /dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2> /dev/null
  fi
}

complete -F _planner planner
)script";

constexpr const char* kZsh = R"script(#compdef planner
# Completion of planner in zsh. Write it to a file _planner in a folder of $fpath, or load it with:
# source <(planner completion zsh)

_planner() {
  local line word files=0
  local -a before values shown open open_shown
  before=("${(@Q)words[2,CURRENT-1]}")
  for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" complete -- "${before[@]}" "${(Q)PREFIX}" 2> /dev/null)}"; do
    word=${line%%$'\t'*}
    if [[ $word == :files ]]; then
      files=1
    elif [[ $word == *= ]]; then
      open+=("$word")
      open_shown+=("${line/$'\t'/  }")
    elif [[ -n $word ]]; then
      values+=("$word")
      shown+=("${line/$'\t'/  }")
    fi
  done
  (( ${#values} )) && compadd -l -d shown -a values
  (( ${#open} )) && compadd -l -S '' -d open_shown -a open
  (( files )) && _files
  (( ${#values} + ${#open} + files ))
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _planner "$@"
elif (( $+functions[compdef] )); then
  compdef _planner planner
fi
)script";

constexpr const char* kFish =
    R"script(# Completion of planner in fish. Load it with: planner completion fish | source

function __planner_complete
    set -l before (commandline -opc)
    set -l last (commandline -ct)
    set -l program $before[1]
    set -e before[1]
    for line in ($program complete -- $before "$last" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$last"
        else
            printf '%s\n' $line
        end
    end
end

complete -c planner -f -a '(__planner_complete)'
)script";

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == kShells[0]) return kBash;
  if (shell == kShells[1]) return kZsh;
  INVARIANT(shell == kShells[2], "a shell of kShells");
  return kFish;
}

}  // namespace plimsoll
