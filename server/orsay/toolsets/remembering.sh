# Read by bash (BASH_ENV) before a command of the toolset Shell: it brings back what the command before
# left, and keeps what this one leaves. Words are quoted or `builtin`, since a model may have functions and
# aliases of any name; its options, such as -e or -x, come last and are put aside first.

unset -v __orsay_shell
export -n __orsay_file __orsay_theirs
__orsay_state=$__orsay_file.state
__orsay_mv=$(type -P mv)

# At the end of the shell: $1 is the status of the command.
__orsay_end() {
    __orsay_umask=$(builtin umask)
    builtin umask 077
    if __orsay_write >|"$__orsay_state.$$" 2>/dev/null; then
        builtin command "$__orsay_mv" -f -- "$__orsay_state.$$" "$__orsay_state" 2>/dev/null
    fi
    builtin umask "$__orsay_umask"
    if [[ $__orsay_exit ]]; then
        builtin eval "builtin set ${__orsay_exit#trap}"
        builtin eval "__orsay_return $__orsay_status; $1"
    fi
}

__orsay_return() { builtin return "$1"; }

__orsay_write() {
    builtin printf '\\builtin cd -- %q >/dev/null\n\\builtin unset OLDPWD\n' "$PWD"
    builtin printf '\\builtin umask %s\n' "$__orsay_umask"
    builtin shopt -p
    builtin printf '%s\n' '\builtin shopt -u expand_aliases' '\builtin shopt -s extglob'
    builtin shopt -u nocasematch
    builtin shopt -s extglob
    __orsay_variables
    builtin alias -p
    __orsay_functions
    [[ $__orsay_shopt == *:extglob:* ]] || builtin printf '%s\n' '\builtin shopt -u extglob'
    [[ $__orsay_shopt != *:expand_aliases:* ]] || builtin printf '%s\n' '\builtin shopt -s expand_aliases'
    __orsay_set=${__orsay_set//:@(onecmd|verbose)/}
    builtin printf '\\builtin set +o braceexpand +o hashall +o interactive-comments %s\n' \
        "${__orsay_set//:/ -o }"
}

__orsay_variables() {
    builtin mapfile -t __orsay_names < <(builtin compgen -v)
    for __orsay_name in "${__orsay_names[@]}"; do
        case $__orsay_name in
            __orsay_* | _ | PWD | SHLVL | SHELLOPTS | UID | EUID | PPID | GROUPS | DIRSTACK) ;;
            FUNCNAME | PIPESTATUS | LINENO | SECONDS | RANDOM | SRANDOM | EPOCHSECONDS | EPOCHREALTIME) ;;
            HISTCMD | COMP_WORDBREAKS) ;;
            BASH | BASHOPTS | BASHPID | BASH_[ACLMRSTV]* | BASH_EXECUTION_STRING) ;;
            *) builtin declare -p "$__orsay_name" ;;
        esac
    done
}

__orsay_functions() {
    builtin mapfile -t __orsay_names < <(builtin declare -F)
    for __orsay_name in "${__orsay_names[@]}"; do
        case ${__orsay_name##* } in
            __orsay_* | trap) continue ;;
        esac
        builtin declare -f "${__orsay_name##* }"
        [[ $__orsay_name == 'declare -f '* ]] || builtin printf '\\builtin %s\n' "$__orsay_name"
    done
}

# A trap that a command sets for its own end runs too, once the state is kept.
trap() {
    { builtin local -; builtin set +x; } 2>/dev/null
    if [[ $BASHPID == "$$" && ( $# -eq 0 || $* == *@(-p|0|[Ee][Xx][Ii][Tt])* ) ]]; then
        builtin eval "builtin ${__orsay_exit:-trap - EXIT}"
        builtin trap "$@"
        __orsay_catch $?
    else
        builtin trap "$@"
    fi
}

__orsay_catch() {
    __orsay_exit=$(builtin trap -p EXIT)
    [[ $__orsay_exit != *__orsay_end* ]] || __orsay_exit=
    builtin trap '{ __orsay_status=$? __orsay_set=:$SHELLOPTS __orsay_shopt=:$BASHOPTS:
        builtin set +euvx +o posix; builtin trap - DEBUG ERR RETURN; } >/dev/null 2>&1
        __orsay_end "$__orsay_status"' EXIT
    builtin return "$1"
}

__orsay_catch 0
if [[ -f $__orsay_state ]]; then
    mapfile -t __orsay_names < <(compgen -e)
    for __orsay_name in "${__orsay_names[@]}"; do
        [[ $__orsay_name == __orsay_* ]] || unset -v "$__orsay_name"
    done
    . "$__orsay_state" 2>/dev/null
else
    unset BASH_ENV
    [[ -z $__orsay_theirs ]] || export BASH_ENV=$__orsay_theirs
    [[ ! -f $__orsay_theirs ]] || . "$__orsay_theirs"
fi
