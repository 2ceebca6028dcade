#compdef gpumon
# Completion of gpumon for zsh. docs/commands.py makes it of docs/shells and the parsers of the commands.

_gpumon_sources() {
  if compset -P 'replay:'; then
    _files
    return
  fi
  local -a alone=('auto:every GPU found' 'nvml:NVIDIA GPUs of this machine' 'sim:a simulation' 'sim\:idle:a simulation' 'sim\:one:a simulation' 'sim\:laptop:a simulation' 'sim\:sixteen:a simulation' 'sim\:faults:a simulation' 'sim\:hostile:a simulation')
  local -a before=('replay\::a recording, or an nvidia-smi log (CSV or dmon, also .gz)')
  _describe -t sources source alone -- before -S ''
}

_gpumon() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'tui:terminal view: every GPU, live, with the epochs of trainings'
    'web:browser view: which GPUs are free, who uses the others, every run'
    'top:status again and again, for plain terminals and logs'
    'status:one-shot status of GPUs, processes and runs; --json for programs'
    'run:run a command and print its GPU cost when it exits'
    'runs:list, show, compare, report and export runs, epoch by epoch'
    'history:show what is kept of the past, and totals of a window, or export one'
    'export:export metrics of this node to Prometheus'
    'record:record frames into a file that --source replay:FILE plays'
    'daemon:sample GPUs for all views on this machine until stopped'
    'doctor:check driver, daemon, files and packages, and say what to do'
    'completion:print the script by which bash, zsh or fish completes commands'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '(-V --version)'{-V,--version}'[show the version and exit]' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    tui) _gpumon_tui && ret=0 ;;
    web) _gpumon_web && ret=0 ;;
    top) _gpumon_top && ret=0 ;;
    status) _gpumon_status && ret=0 ;;
    run) _gpumon_run && ret=0 ;;
    runs) _gpumon_runs && ret=0 ;;
    history) _gpumon_history && ret=0 ;;
    export) _gpumon_export && ret=0 ;;
    record) _gpumon_record && ret=0 ;;
    daemon) _gpumon_daemon && ret=0 ;;
    doctor) _gpumon_doctor && ret=0 ;;
    completion) _gpumon_completion && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_tui() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '--readonly[change nothing on this machine: no process can be ended from the view]' \
    '--notify[notify, through the terminal, of runs that end and GPUs that become free (GPUMON_NOTIFY=on, or notify = true in the file)]' && ret=0
  return ret
}

_gpumon_web() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'token:add, list or revoke named tokens, which open the page and the interface for programs'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--host=[address to listen on (default: 127.0.0.1, this machine only)]:HOST: ' \
    '--port=[port to listen on (default: 8050); 0 picks a free one]:PORT: ' \
    '--socket=[listen on a Unix socket with mode 0600 instead of a port]:PATH:_files' \
    '--token-file=[file with the token; default: generated once and kept in the state directory]:FILE:_files' \
    '--sessions[list the browsers that have signed in, and exit]' \
    '--end-session=[sign out the browser with this session ID, or '"'"'all'"'"', and exit; gpumon web may be running]:ID: ' \
    '--no-token[disable authentication (loopback only)]' \
    '--names=[names of users: shown, hashed or hidden (GPUMON_NAMES; default: shown)]:WAY:(shown hashed hidden)' \
    '--alias=[print the hash of a user'"'"'s name and the link of their own page, and exit]:USER: ' \
    '*--allowed-host=[additional host name to accept, such as that of a proxy; can be repeated]:NAME: ' \
    '--prefix=[path below which a proxy serves this, such as /gpus, if it sends no X-Forwarded-Prefix]:/PATH: ' \
    '--prometheus=[a Prometheus, or what answers as one (VictoriaMetrics, Mimir, Thanos), that scrapes '"'"'gpumon export'"'"' on the nodes]:URL: ' \
    '--prometheus-config=[TOML file of mode 0600 with token, or username and password, ca, certificate, key and headers for it]:FILE:_files' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    token) _gpumon_web_token && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_web_token() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'add:add a token and print it, once; it is kept as a hash'
    'list:list the names of tokens, and when each was used last'
    'revoke:revoke a token: what it opened is closed, also where gpumon web runs'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    add) _gpumon_web_token_add && ret=0 ;;
    list) _gpumon_web_token_list && ret=0 ;;
    revoke) _gpumon_web_token_revoke && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_web_token_add() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:NAME: ' && ret=0
  return ret
}

_gpumon_web_token_list() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_web_token_revoke() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:NAME: ' && ret=0
  return ret
}

_gpumon_top() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '(-n --count)'{-n+,--count=}'[print so many pictures, then exit (default: until Ctrl-C)]:COUNT: ' \
    '--prometheus=[a Prometheus, or what answers as one (VictoriaMetrics, Mimir, Thanos), that scrapes '"'"'gpumon export'"'"' on the nodes]:URL: ' \
    '--prometheus-config=[TOML file of mode 0600 with token, or username and password, ca, certificate, key and headers for it]:FILE:_files' \
    '--period=[with --prometheus: the time of users is that of the last day, week or 30 days (month), or of a month of the calendar (default: week)]:{day,week,month,this-month,last-month}:(day week month this-month last-month)' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_status() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--json[print one JSON object for programs]' \
    '--verbose[add processes, clock event reasons, skipped samples, driver call costs]' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_run() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--name=[name of the run; default: derived from the command]:NAME: ' \
    '--auto[record trainings by Keras, Lightning, Transformers, XGBoost, LightGBM, Ignite (from 2 epochs on), Accelerate (trackers) and scikit-learn (searches), without changing their code]' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '(-)1:command:_command_names -e' '*::arguments:_normal' && ret=0
  return ret
}

_gpumon_runs() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'list:list runs, newest first: user, duration, epochs, energy'
    'show:show one run: epochs, totals, problems'
    'compare:compare runs, and mark differences larger than the variation between epochs'
    'report:write one run as a self-contained HTML page'
    'export:export one run as CSV, JSON or Parquet'
    'rename:give one of your runs another name'
    'note:add a line to one of your runs'
    'tag:add tags to one of your runs, or remove them'
    'delete:delete runs of yours that are over'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--user=[only runs of this user]:USER: ' \
    '--name=[only runs whose name starts with NAME]:NAME: ' \
    '--running[only running runs]' \
    '*--tag=[only runs with this tag; repeatable]:TAG: ' \
    '*--where=[only runs with this parameter (lr=0.1); repeatable]:NAME=VALUE: ' \
    '--limit=[at most N runs; 0 for all (default: 50)]:N: ' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    list) _gpumon_runs_list && ret=0 ;;
    show) _gpumon_runs_show && ret=0 ;;
    compare) _gpumon_runs_compare && ret=0 ;;
    report) _gpumon_runs_report && ret=0 ;;
    export) _gpumon_runs_export && ret=0 ;;
    rename) _gpumon_runs_rename && ret=0 ;;
    note) _gpumon_runs_note && ret=0 ;;
    tag) _gpumon_runs_tag && ret=0 ;;
    delete) _gpumon_runs_delete && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_runs_list() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--user=[only runs of this user]:USER: ' \
    '--name=[only runs whose name starts with NAME]:NAME: ' \
    '--running[only running runs]' \
    '*--tag=[only runs with this tag; repeatable]:TAG: ' \
    '*--where=[only runs with this parameter (lr=0.1); repeatable]:NAME=VALUE: ' \
    '--limit=[at most N runs; 0 for all (default: 50)]:N: ' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_runs_show() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--phases[add a row for each phase of each epoch]' \
    '--ranks[add a table of the processes of a distributed run]' \
    '--tail=[only the last N epochs or rows of steps; totals still include all]:N: ' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' && ret=0
  return ret
}

_gpumon_runs_compare() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' \
    '*:OTHER: ' && ret=0
  return ret
}

_gpumon_runs_report() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '(-o --output)'{-o+,--output=}'[output file (overwritten if it exists)]:FILE.html:_files' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' && ret=0
  return ret
}

_gpumon_runs_export() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--format=[csv: one row for each rank, epoch, phase and device; json: everything; parquet: one row for each rank, epoch, phase and device]:{csv,json,parquet}:(csv json parquet)' \
    '(-o --output)'{-o+,--output=}'[output file (overwritten if it exists); default: stdout]:FILE:_files' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' && ret=0
  return ret
}

_gpumon_runs_rename() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' \
    '2:NAME: ' && ret=0
  return ret
}

_gpumon_runs_note() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' \
    '*:TEXT: ' && ret=0
  return ret
}

_gpumon_runs_tag() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--remove[take these tags off the run]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:RUN: ' \
    '*:TAG: ' && ret=0
  return ret
}

_gpumon_runs_delete() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--yes[delete without asking]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '*:RUN: ' && ret=0
  return ret
}

_gpumon_history() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'export:export a window as CSV or Parquet: low, mean and high of each metric'
    'totals:show energy, utilization, throttling, peak memory and PCIe bytes of a window, and how much of it is missing'
    'accounts:show who used the GPUs: held, busy and idle time and energy of each user'
    'processes:list the processes that were on the GPUs: user, time, memory, share of the SMs'
    'events:list events: runs, out of memory, throttling, lost or idle GPUs, the driver, the daemon'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    export) _gpumon_history_export && ret=0 ;;
    totals) _gpumon_history_totals && ret=0 ;;
    accounts) _gpumon_history_accounts && ret=0 ;;
    processes) _gpumon_history_processes && ret=0 ;;
    events) _gpumon_history_events && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_history_export() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--format=[format of the output]:{csv,parquet}:(csv parquet)' \
    '--last=[length of the window (default: 24h)]:DURATION: ' \
    '--step=[seconds in each row (default: the finest that reaches back so far)]:{1,10,300}:(1 10 300)' \
    '(-o --output)'{-o+,--output=}'[output file (overwritten if it exists); default: stdout]:FILE:_files' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_history_totals() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--since=[begin of the window: 7d for so long ago, or 2026-01-31T14:00 (default: 24h)]:TIME: ' \
    '--until=[end of the window (default: the newest sample; now, if no daemon runs)]:TIME: ' \
    '*--gpu=[only this GPU, by index or UUID; may be repeated]:GPU: ' \
    '--json[print one JSON object for programs]' \
    '--csv[print CSV, a line for each GPU and total]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_history_accounts() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--since=[begin of the window, in whole hours: 7d for so long ago, or 2026-01-31 (default: 7d)]:TIME: ' \
    '--until=[end of the window, in whole hours, at most now (default: now)]:TIME: ' \
    '--by=[how to group the users'"'"' time (default: user)]:{user,device,hour,day,week,month}:(user device hour day week month)' \
    '--groups[add the users up by group, as \[groups\] in the settings file names them]' \
    '--json[print one JSON object for programs]' \
    '--csv[print CSV, a row for each user and group]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_history_processes() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--since=[begin of the window: 7d for so long ago, or 2026-01-31T14:00 (default: 24h)]:TIME: ' \
    '--until=[end of the window (default: the newest sample; now, if no daemon runs)]:TIME: ' \
    '*--gpu=[only this GPU, by index or UUID; may be repeated]:GPU: ' \
    '--user=[only processes of this user]:USER: ' \
    '--pid=[only processes with this pid]:PID: ' \
    '--json[print one JSON object for programs]' \
    '--csv[print CSV, a line for each process and GPU]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_history_events() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--since=[begin of the window: 7d for so long ago, or 2026-01-31T14:00 (default: 24h)]:TIME: ' \
    '--until=[end of the window (default: now)]:TIME: ' \
    '*--kind=[only events of this kind; may be repeated: daemon_started, daemon_stopped, run_began, run_ended, run_died, out_of_memory, throttling_began, throttling_ended, idle_began, idle_ended, gpu_lost, gpu_back, driver_lost, driver_reloaded, xid, processes_left_out, clock_set, not_seen]:KIND:(daemon_started daemon_stopped run_began run_ended run_died out_of_memory throttling_began throttling_ended idle_began idle_ended gpu_lost gpu_back driver_lost driver_reloaded xid processes_left_out clock_set not_seen)' \
    '--gpu=[only this GPU, by index or UUID]:GPU: ' \
    '--user=[only events of this user]:USER: ' \
    '--run=[only events of the run with this id]:RUN: ' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_export() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--listen=[address to serve /metrics on (default: 127.0.0.1, this machine only; port 9401 for native, 9400 for dcgm, 9445 for jobstats); without HOST all addresses, of IPv4 and of IPv6; port 0 picks a free one]:[HOST]\:PORT: ' \
    '--socket=[serve on a Unix socket with mode 0600 instead of a port]:PATH:_files' \
    '--socket-group=[group that may open the socket, too, such as that of a proxy: its mode is then 0660]:GROUP: ' \
    '--textfile=[write FILE every 15 s for the textfile collector of node_exporter; it is removed at exit]:FILE:_files' \
    '--once[print the metrics once, or write FILE once, and exit]' \
    '--web-config=[TLS, client certificates and passwords, in the format of --web.config.file of node_exporter]:FILE:_files' \
    '--token-file=[file with a token that scrapers must show (in Prometheus: authorization: credentials_file)]:FILE:_files' \
    '--dialect=[names, units and labels of the metrics: those of gpumon (native, the default), of NVIDIA'"'"'s dcgm-exporter, or of the exporter that jobstats asks]:{native,dcgm,jobstats}:(native dcgm jobstats)' \
    '--users=[tell users by name, by number, by hash, or not at all]:{name,uid,hash,off}:(name uid hash off)' \
    '--host-label=[label with the name of this host in the dialect dcgm: Hostname (default), hostname, or none]:NAME: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_record() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '(-o --output)'{-o+,--output=}'[file to make, such as run.gpumon]:FILE:_files' \
    '--force[replace FILE if it exists]' \
    '--for=[end after 90s, 10m or 2h; default: at Ctrl-C]:DURATION: ' \
    '--last=[record the last 10m or 2h that the daemon still holds, and end]:DURATION: ' \
    '--anonymize[replace the names of users, hosts, runs, processes, logged metrics and GPUs'"'"' UUIDs, to share the file]' \
    '--source=[where samples come from (GPUMON_SOURCE; default: the source of the running daemon, else auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_daemon() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  local -a below=(
    'status:show whether a daemon runs, since when, what it samples and what it lacks'
    'stop:stop your daemon, and wait until it has stopped'
    'restart:stop your daemon, and start one with the same options in the background'
  )
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--detach[run in the background, and return after the first sample]' \
    '--source=[where samples come from (GPUMON_SOURCE; default: auto)]:SOURCE:_gpumon_sources' \
    '--speed=[playback speed of a recording (GPUMON_SPEED; default: 1)]:N: ' \
    '--from=[begin of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--to=[end of what is played of a recording: 14:03, 2026-11-22 14:03, or 10m after its beginning]:MOMENT: ' \
    '--interval=[seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)]:SECONDS: ' \
    '--no-gpm[do not read GPM, the performance counters of Hopper and newer GPUs, for a profiler that requires them for itself (GPUMON_GPM=off, or gpm = false in the file)]' \
    '--idle-interval=[sample so seldom while no GPU does anything and none has a process (default: as always)]:SECONDS: ' \
    '--job-dir=[directory with a file for each GPU that names its job, as for --hpc-job-mapping-dir of dcgm-exporter (default: none); /run/gpustat of jobstats is read wherever it is]:DIR:_files -/' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' \
    '1:command:{_describe -t commands command below}' \
    '*:: :->below' && ret=0
  if [[ $state == below ]]; then
    case $words[1] in
    status) _gpumon_daemon_status && ret=0 ;;
    stop) _gpumon_daemon_stop && ret=0 ;;
    restart) _gpumon_daemon_restart && ret=0 ;;
    esac
  fi
  return ret
}

_gpumon_daemon_status() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_daemon_stop() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_daemon_restart() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_doctor() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '--json[print one JSON object for programs]' \
    '--dir=[live data (GPUMON_DIR; default: the first usable of /run/gpumon, $XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)]:DIR:_files -/' \
    '--state-dir=[persistent data, such as the ledger of runs (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)]:DIR:_files -/' && ret=0
  return ret
}

_gpumon_completion() {
  local curcontext=$curcontext state line ret=1
  typeset -A opt_args
  _arguments -C -S \
    '(- *)'{-h,--help}'[show this help message and exit]' \
    '1:{bash,zsh,fish}:(bash zsh fish)' && ret=0
  return ret
}

if [[ $funcstack[1] == _gpumon ]]; then
  _gpumon "$@"
else
  compdef _gpumon gpumon
fi
