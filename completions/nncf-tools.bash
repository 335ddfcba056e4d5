_nncf_tools_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _NNCF_TOOLS_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _nncf_tools_completion nncf-tools
