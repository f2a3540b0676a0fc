# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Completion for bash. picitool itself says what may come next; where it says nothing, files may.
_picitool() {
    local candidate
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$(printf %q "${candidate%%$'\t'*}")")
    done < <("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _picitool picitool
