//! `pirn completions SHELL`.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::output::terminal::answer;

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

/// Completes the ids of runs and sessions, which are read from the store. `{runs}` and `{sessions}` are the commands with an id.
const IDS_IN_BASH: &str = r#"
_pirn_with_ids() {
    local word="${COMP_WORDS[COMP_CWORD]}" place store=() ids=
    if [[ "$COMP_CWORD" -ge 3 && "$word" != -* && "${COMP_WORDS[COMP_CWORD-1]}" != -* ]]; then
        for ((place = 3; place < ${#COMP_WORDS[@]}; place++)); do
            [[ "${COMP_WORDS[place]}" == --store ]] && store=(--store "${COMP_WORDS[place+1]}")
        done
        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
            {runs})
                ids="$(pirn runs list --ids "${store[@]}" 2>/dev/null)" ;;
            {sessions})
                ids="$(pirn sessions list --ids "${store[@]}" 2>/dev/null)" ;;
        esac
        COMPREPLY=($(compgen -W "$ids" -- "$word"))
        [[ ${#COMPREPLY[@]} -gt 0 ]] && return
    fi
    _pirn "$@"
}
complete -F _pirn_with_ids -o nosort -o bashdefault -o default pirn
"#;

/// Start of the function that clap generates for zsh. That function is renamed, because zsh loads the file as `_pirn`.
const ZSH_FUNCTION: &str = "\n_pirn() {\n";

/// As [`IDS_IN_BASH`], for zsh.
const IDS_IN_ZSH: &str = r#"
_pirn() {
    local -a store ids
    local place
    if (( CURRENT >= 4 )) && [[ $words[CURRENT] != -* && $words[CURRENT-1] != -* ]]; then
        place=${words[(I)--store]}
        (( place )) && store=(--store "$words[place+1]")
        case "$words[2] $words[3]" in
            ({runs})
                ids=(${(f)"$(pirn runs list --ids $store 2>/dev/null)"}) ;;
            ({sessions})
                ids=(${(f)"$(pirn sessions list --ids $store 2>/dev/null)"}) ;;
        esac
        # Unsorted: the newest run is the first.
        (( $#ids )) && compadd -V ids -- $ids && return
    fi
    _pirn_without_ids "$@"
}

_pirn_without_ids() {
"#;

/// As [`IDS_IN_BASH`], for fish.
const IDS_IN_FISH: &str = r#"
function __fish_pirn_ids
    set -l words (commandline -opc)
    set -l store
    if set -l place (contains -i -- --store $words)
        set store --store $words[(math $place + 1)]
    end
    pirn $argv[1] list --ids $store 2>/dev/null
end
function __fish_pirn_needs_id
    set -l words (commandline -opc)
    test (count $words) -ge 3; and string match -qv -- '-*' $words[-1]; and test "$words[2]" = $argv[1]; and contains -- $words[3] $argv[2..]
end
complete -c pirn -n "__fish_pirn_needs_id runs {runs}" -f -k -a "(__fish_pirn_ids runs)"
complete -c pirn -n "__fish_pirn_needs_id sessions {sessions}" -f -k -a "(__fish_pirn_ids sessions)"
"#;

/// Prints the completion script.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> ExitCode {
    let (runs, sessions) = (with_id(&command, "runs"), with_id(&command, "sessions"));
    let patterns = |template: &str| {
        let pattern = |group: &str, names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| format!("\"{group} {name}\"")).collect();
            names.join("|")
        };
        let filled = template.replace("{runs}", &pattern("runs", &runs));
        filled.replace("{sessions}", &pattern("sessions", &sessions))
    };
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pirn", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match args.shell {
        Shell::Bash => format!("{script}{}", patterns(IDS_IN_BASH)),
        Shell::Zsh => script.replacen(ZSH_FUNCTION, &patterns(IDS_IN_ZSH), 1),
        Shell::Fish => {
            let ids = IDS_IN_FISH.replace("{runs}", &runs.join(" "));
            format!("{script}{}", ids.replace("{sessions}", &sessions.join(" ")))
        }
        _ => script.into_owned(),
    };
    answer(&script, 0)
}

/// Returns the subcommands of a command that have the id of a run or session as first argument.
fn with_id(command: &clap::Command, group: &str) -> Vec<String> {
    let subcommands = command
        .find_subcommand(group)
        .into_iter()
        .flat_map(clap::Command::get_subcommands);
    let has_id = |subcommand: &&clap::Command| {
        let first = subcommand.get_positionals().next();
        let name = first.and_then(|first| first.get_value_names()?.first());
        // The two runs of a comparison have other names.
        name.is_some_and(|name| name == "ID" || name == "A")
    };
    subcommands
        .filter(has_id)
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect()
}
