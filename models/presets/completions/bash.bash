# Completion of planner in bash. Load it with: source <(planner completion bash)

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
