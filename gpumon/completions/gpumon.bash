# Completion of gpumon for bash. docs/commands.py makes it of docs/shells and the parsers of the commands.

# Sets what can come behind a command: $1 is the words that lead to it.
_gpumon_command() {
  below='' arguments='' options='' values=''
  case $1 in
  gpumon)
    below='tui web top status run runs history export record daemon doctor completion'
    options='-h --help -V --version'
    values='' ;;
  'gpumon tui')
    options='-h --help --source --speed --from --to --interval --dir --state-dir --readonly --notify'
    values='--source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon web')
    below='token'
    options='-h --help --host --port --socket --token-file --sessions --end-session --no-token --names --alias --allowed-host --prefix --prometheus --prometheus-config --source --speed --from --to --interval --dir --state-dir'
    values='--host:any --port:any --socket:file --token-file:file --end-session:any --names:words:shown,hashed,hidden --alias:any --allowed-host:any --prefix:any --prometheus:any --prometheus-config:file --source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon web token')
    below='add list revoke'
    options='-h --help'
    values='' ;;
  'gpumon web token add')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon web token list')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon web token revoke')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon top')
    options='-h --help -n --count --prometheus --prometheus-config --period --source --speed --from --to --interval --dir --state-dir'
    values='-n:any --count:any --prometheus:any --prometheus-config:file --period:words:day,week,month,this-month,last-month --source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon status')
    options='-h --help --json --verbose --source --speed --from --to --interval --dir --state-dir'
    values='--source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon run')
    arguments='command'  # the last one again and again
    options='-h --help --name --auto --source --speed --from --to --interval --dir --state-dir'
    values='--name:any --source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon runs')
    below='list show compare report export rename note tag delete'
    options='-h --help --user --name --running --tag --where --limit --json --dir --state-dir'
    values='--user:any --name:any --tag:any --where:any --limit:any --dir:directory --state-dir:directory' ;;
  'gpumon runs list')
    options='-h --help --user --name --running --tag --where --limit --json --dir --state-dir'
    values='--user:any --name:any --tag:any --where:any --limit:any --dir:directory --state-dir:directory' ;;
  'gpumon runs show')
    options='-h --help --phases --ranks --tail --json --dir --state-dir'
    values='--tail:any --dir:directory --state-dir:directory' ;;
  'gpumon runs compare')
    options='-h --help --json --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon runs report')
    options='-h --help -o --output --dir --state-dir'
    values='-o:file --output:file --dir:directory --state-dir:directory' ;;
  'gpumon runs export')
    options='-h --help --format -o --output --dir --state-dir'
    values='--format:words:csv,json,parquet -o:file --output:file --dir:directory --state-dir:directory' ;;
  'gpumon runs rename')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon runs note')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon runs tag')
    options='-h --help --remove --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon runs delete')
    options='-h --help --yes --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon history')
    below='export totals accounts processes events'
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon history export')
    options='-h --help --format --last --step -o --output --dir --state-dir'
    values='--format:words:csv,parquet --last:any --step:words:1,10,300 -o:file --output:file --dir:directory --state-dir:directory' ;;
  'gpumon history totals')
    options='-h --help --since --until --gpu --json --csv --dir --state-dir'
    values='--since:any --until:any --gpu:any --dir:directory --state-dir:directory' ;;
  'gpumon history accounts')
    options='-h --help --since --until --by --groups --json --csv --dir --state-dir'
    values='--since:any --until:any --by:words:user,device,hour,day,week,month --dir:directory --state-dir:directory' ;;
  'gpumon history processes')
    options='-h --help --since --until --gpu --user --pid --json --csv --dir --state-dir'
    values='--since:any --until:any --gpu:any --user:any --pid:any --dir:directory --state-dir:directory' ;;
  'gpumon history events')
    options='-h --help --since --until --kind --gpu --user --run --json --dir --state-dir'
    values='--since:any --until:any --kind:words:daemon_started,daemon_stopped,run_began,run_ended,run_died,out_of_memory,throttling_began,throttling_ended,idle_began,idle_ended,gpu_lost,gpu_back,driver_lost,driver_reloaded,xid,processes_left_out,clock_set,not_seen --gpu:any --user:any --run:any --dir:directory --state-dir:directory' ;;
  'gpumon export')
    options='-h --help --listen --socket --socket-group --textfile --once --web-config --token-file --dialect --users --host-label --dir --state-dir'
    values='--listen:any --socket:file --socket-group:any --textfile:file --web-config:file --token-file:file --dialect:words:native,dcgm,jobstats --users:words:name,uid,hash,off --host-label:any --dir:directory --state-dir:directory' ;;
  'gpumon record')
    options='-h --help -o --output --force --for --last --anonymize --source --speed --from --to --interval --dir --state-dir'
    values='-o:file --output:file --for:any --last:any --source:source --speed:any --from:any --to:any --interval:any --dir:directory --state-dir:directory' ;;
  'gpumon daemon')
    below='status stop restart'
    options='-h --help --detach --source --speed --from --to --interval --no-gpm --idle-interval --job-dir --dir --state-dir'
    values='--source:source --speed:any --from:any --to:any --interval:any --idle-interval:any --job-dir:directory --dir:directory --state-dir:directory' ;;
  'gpumon daemon status')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon daemon stop')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon daemon restart')
    options='-h --help --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon doctor')
    options='-h --help --json --dir --state-dir'
    values='--dir:directory --state-dir:directory' ;;
  'gpumon completion')
    arguments='words:bash,zsh,fish any'  # the last one again and again
    options='-h --help'
    values='' ;;
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
    kind='auto nvml replay: sim sim:idle sim:one sim:laptop sim:sixteen sim:faults sim:hostile'
    if [[ $word == replay:* ]]; then kind='' && compopt -o default 2>/dev/null; fi
    if [[ replay: == "$word"* ]]; then compopt -o nospace 2>/dev/null; fi
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
