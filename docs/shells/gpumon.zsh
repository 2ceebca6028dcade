#compdef gpumon
# Completion of gpumon for zsh. docs/commands.py makes it of docs/shells and the parsers of the commands.

_gpumon_sources() {
  if compset -P '@PLAYED@'; then
    _files
    return
  fi
  local -a alone=(@WORDS@)
  local -a before=(@FILES@)
  _describe -t sources source alone -- before -S ''
}

@FUNCTIONS@
if [[ $funcstack[1] == _gpumon ]]; then
  _gpumon "$@"
else
  compdef _gpumon gpumon
fi
