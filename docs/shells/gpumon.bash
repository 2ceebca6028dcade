# Completion of gpumon for bash. docs/commands.py makes it of docs/shells and the parsers of the commands.

# Sets what can come behind a command: $1 is the words that lead to it.
_gpumon_command() {
  below='' arguments='' options='' values=''
  case $1 in
@CASES@
  esac
}

_gpumon() {
  local below arguments options values path=gpumon kind='' word='' last='' ended='' first='' count=0 i
  local -a words=() places=()
  local IFS=$' \t\n'
  # Bash splits words at = and :, too: they are put together again.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    if ((i > 1)) && [[ ${COMP_WORDS[i]} == [=:]* || ${COMP_WORDS[i - 1]} == *[=:] ]]; then
      words[-1]+=${COMP_WORDS[i]}
    else
      words+=("${COMP_WORDS[i]}") places+=("$i")
    fi
  done
  _gpumon_command "$path"
  for ((i = 1; i < ${#words[@]} - 1; i++)); do
    word=${words[i]}
    if [[ $last ]]; then
      last=''
    elif [[ $word == -- && ! $ended ]]; then
      ended=1
    elif [[ $word == -* && ! $ended ]]; then
      if [[ " $values" == *" $word:"* ]]; then last=$word; fi
    elif ((count == 0)) && [[ " $below " == *" $word "* ]]; then
      path+=" $word"
      _gpumon_command "$path"
    else
      if [[ $arguments == command ]]; then first=$i && break; fi
      count=$((count + 1))
    fi
  done
  word=${words[-1]}
  COMPREPLY=()
  if [[ $last || ($word == --*=* && ! $ended && ! $first) ]]; then
    if [[ ! $last ]]; then last=${word%%=*} word=${word#*=}; fi
    if [[ " $values" == *" $last:"* ]]; then kind=" $values" kind=${kind##*" $last:"} kind=${kind%% *}; fi
  elif [[ $word == -* && ! $ended && ! $first ]]; then
    kind=words:${options// /,}
  elif ((count == 0)) && [[ $below ]]; then
    kind=words:${below// /,}
  else
    i=0
    for kind in $arguments; do
      if ((i++ == count)); then break; fi
    done
  fi
  case $kind in
  words:*) kind=${kind#words:} ;;
  source)
    kind='@SOURCES@'
    if [[ $word == @PLAYED@* ]]; then kind='' && compopt -o default 2>/dev/null; fi
    if [[ @PLAYED@ == "$word"* ]]; then compopt -o nospace 2>/dev/null; fi
    ;;
  file) kind='' && compopt -o default 2>/dev/null ;;
  directory) kind='' && compopt -o dirnames 2>/dev/null ;;
  command)
    kind=''
    # Of the package bash-completion: the other command completes as by itself.
    for i in _comp_command_offset _command_offset; do
      if declare -F "$i" >/dev/null; then
        "$i" "${places[${first:-${#words[@]} - 1}]}"
        return
      fi
    done
    if [[ $first ]]; then compopt -o default 2>/dev/null; else mapfile -t COMPREPLY < <(compgen -c -- "$word"); fi
    ;;
  *) kind='' ;;
  esac
  if [[ $kind ]]; then mapfile -t COMPREPLY < <(compgen -W "${kind//,/ }" -- "$word"); fi
  # It replaces only what stands behind the last of these.
  i=${COMP_WORDBREAKS//[^=:]/}
  if [[ $i && $word == *["$i"]* ]]; then
    word=${word%"${word##*["$i"]}"}
    COMPREPLY=("${COMPREPLY[@]#"$word"}")
  fi
}

complete -F _gpumon gpumon
