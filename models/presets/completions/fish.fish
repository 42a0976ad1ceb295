# Completion of planner in fish. Load it with: planner completion fish | source

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
