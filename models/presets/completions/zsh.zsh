#compdef planner
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
