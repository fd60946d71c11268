//! `pirn completions SHELL`.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::terminal::answer;

/// Arguments of `pirn completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pirn completions bash > ~/.local/share/bash-completion/completions/pirn
  pirn completions zsh > ~/.zfunc/_pirn
  pirn completions fish > ~/.config/fish/completions/pirn.fish

Exit code: 0.")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Completes the ids of runs and sessions, which are read from the store.
const IDS_IN_BASH: &str = r#"
_pirn_with_ids() {
    local word="${COMP_WORDS[COMP_CWORD]}" place store=() ids=
    if [[ "$COMP_CWORD" -ge 3 && "$word" != -* && "${COMP_WORDS[COMP_CWORD-1]}" != -* ]]; then
        for ((place = 3; place < ${#COMP_WORDS[@]}; place++)); do
            [[ "${COMP_WORDS[place]}" == --store ]] && store=(--store "${COMP_WORDS[place+1]}")
        done
        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
            "runs show"|"runs explain"|"runs events"|"runs diff"|"runs migrate"|"runs resume"|"runs cancel"|"runs answer"|"runs emit"|"runs say"|"runs pause"|"runs pin"|"runs fork"|"runs export")
                ids="$(pirn runs list --ids "${store[@]}" 2>/dev/null)" ;;
            "sessions show"|"sessions remove")
                ids="$(pirn sessions list --ids "${store[@]}" 2>/dev/null)" ;;
        esac
        COMPREPLY=($(compgen -W "$ids" -- "$word"))
        [[ ${#COMPREPLY[@]} -gt 0 ]] && return
    fi
    _pirn "$@"
}
complete -F _pirn_with_ids -o nosort -o bashdefault -o default pirn
"#;

/// Prints the completion script.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pirn", &mut script);
    if args.shell == Shell::Bash {
        script.extend_from_slice(IDS_IN_BASH.as_bytes());
    }
    answer(&String::from_utf8_lossy(&script), 0)
}
