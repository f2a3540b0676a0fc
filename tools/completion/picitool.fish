# SPDX-License-Identifier: BSD-3-Clause
# Completion for fish. picitool itself says what may come next; where it says nothing, files may.
function __picitool_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l candidates ($before[1] --complete $before[2..-1] "$word" 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path "$word"
    end
end
complete -c picitool -f -a '(__picitool_complete)'
