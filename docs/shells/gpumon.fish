# Completion of gpumon for fish. docs/commands.py makes it of docs/shells and the parsers of the commands.

set -g __gpumon_commands @COMMANDS@
set -g __gpumon_values @VALUES@
set -g __gpumon_others @OTHERS@

# Prints the command that the words so far lead to; behind it, one a line, another command that it runs.
function __gpumon_command
    set -l words (commandline -opc)
    set -l path gpumon
    set -l value
    set -e words[1]
    while set -q words[1]
        set -l word $words[1]
        if set -q value[1]
            set -e value
        else if test "$word" = --
            set -e words[1]
            break
        else if string match -q -- '-*' $word
            contains -- "$path $word" $__gpumon_values; and set value $word
        else if contains -- "$path $word" $__gpumon_commands
            set path "$path $word"
        else
            break
        end
        set -e words[1]
    end
    printf '%s\n' $path $words
end

function __gpumon_at
    set -l found (__gpumon_command)
    test "$found[1]" = "$argv"; and not __gpumon_runs $found
end

function __gpumon_now
    set -l found (__gpumon_command)
    test "$found" = "$argv"
end

function __gpumon_runs
    contains -- "$argv[1]" $__gpumon_others; and set -q argv[2]
end

function __gpumon_other
    set -l found (__gpumon_command)
    complete -C (string join ' ' -- (string escape -- $found[2..-1]) (commandline -ct))
end

function __gpumon_sources
    set -l word (commandline -ct | string replace -r -- '^--source=' '')
    if set -l path (string replace -f -r -- '^@PLAYED@' '' $word)
        for file in (__fish_complete_path $path)
            printf '@PLAYED@%s\n' $file
        end
        return
    end
@SOURCES@
end

complete -c gpumon -e
complete -c gpumon -f
complete -c gpumon -n '__gpumon_runs (__gpumon_command)' -x -a '(__gpumon_other)'
@LINES@
