//! Finds and kills the descendants of a program in `/proc`, including those that have left its process group (Linux only; a no-op
//! elsewhere).
//!
//! 1. Every program starts with a mark in its environment, which its children inherit. A process with the mark, or with a living
//!    ancestor in the family, is a descendant.
//! 2. Killing repeats until a complete process table contains no descendant: a process may start another one and exit while the
//!    table is read.
//! 3. An orphan that has cleared its environment has neither a mark nor a known parent. It is found only if this process adopts
//!    orphans ([`adopt_orphans`]): then it becomes a child of this process and is killed with it.
//! 4. Adopted orphans that have exited are reaped with each search, also those that no search has found.

#[cfg(target_os = "linux")]
pub(super) use linux::{family_of, kill_every_child, kill_family};

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of marks assigned so far.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Environment variable that contains a program's mark.
pub(super) const MARK: &str = "PIRN_PROGRAM";

/// Returns a unique mark.
pub(super) fn mark() -> String {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u8));
    format!("{:016x}-{}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Makes this process the parent of the orphans that programs of tools and MCP servers leave behind (Linux only; a no-op
/// elsewhere), so that [`kill_all`](super::kill_all) kills them too. Use it only in a program that starts no other programs:
/// `kill_all` kills those too.
///
/// # Errors
/// Fails if the operating system refuses.
pub fn adopt_orphans() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    linux::adopt_orphans()?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn family_of(_: u32) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill_family((): (), _: &str) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn kill_every_child() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, BTreeSet};
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};

    use super::MARK;

    /// Maximum number of rounds: a process that starts programs faster than they are killed cannot be stopped this way.
    const MOST_ROUNDS: u32 = 64;

    /// Maximum number of consecutive rounds that find nothing. On a machine where processes start and end all the time, every table
    /// may be incomplete. A chain of processes that each start the next one and exit can hide from as many rounds as it has links,
    /// because each link may exit before its environment is read.
    const MOST_IN_VAIN: u32 = 32;

    /// Maximum reads of an empty environment, maximum consecutive reads that find arguments, and the time between reads.
    const MOST_LOOKS: u32 = 2_000;
    const MOST_LOOKS_AT_BARE: u32 = 20;
    const BETWEEN_LOOKS: Duration = Duration::from_micros(500);

    /// Flag of kernel threads, which have no environment.
    const OF_THE_KERNEL: u32 = 0x0020_0000;

    static ADOPTS: AtomicBool = AtomicBool::new(false);

    pub(super) fn adopt_orphans() -> io::Result<()> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        ADOPTS.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// An entry of the process table.
    struct Line {
        parent: u32,
        group: u32,
        session: u32,
        is_over: bool,
        is_of_the_kernel: bool,
        /// Start time in clock ticks since the system's boot.
        began: u64,
    }

    /// Returns the living descendants of a program. Call it before the kill: afterwards they have another parent.
    pub(crate) fn family_of(program: u32) -> BTreeSet<u32> {
        let table = table(&listed());
        let mut family = BTreeSet::new();
        let mut generation = BTreeSet::from([program]);
        // The process id may have been reused by another program.
        if table.get(&program).is_none_or(|line| line.parent != std::process::id()) {
            return family;
        }
        while !generation.is_empty() {
            let of_them = |(id, line): (&u32, &Line)| generation.contains(&line.parent).then_some(*id);
            generation = table
                .iter()
                .filter_map(of_them)
                .filter(|id| !family.contains(id))
                .collect();
            family.extend(&generation);
        }
        family
    }

    /// Kills a family, the programs that it has started since, and every program with this mark.
    pub(crate) fn kill_family(mut family: BTreeSet<u32>, mark: &str) {
        let mut marked = Marked {
            entry: format!("{MARK}={mark}").into_bytes(),
            bare: BTreeSet::new(),
        };
        let own = std::process::id();
        rounds(|table| {
            // No process is older than its parent.
            let since = table.get(&own).map_or(0, |line| line.began);
            let mut found = Found::default();
            for (id, line) in table.iter().filter(|(id, line)| **id != own && line.began >= since) {
                let is_known = family.contains(id) || family.contains(&line.parent);
                let has_mark = is_known
                    || !line.is_over && !line.is_of_the_kernel && {
                        let looked = marked.look_at(*id);
                        found.is_anybody_missed |= looked.is_none();
                        looked.unwrap_or(false)
                    };
                if has_mark {
                    found.programs.push(*id);
                }
            }
            family.extend(&found.programs);
            found
        });
    }

    /// Processes of a table that must be killed.
    #[derive(Default)]
    struct Found {
        programs: Vec<u32>,
        /// A process exited before its environment was read: its children may be missing in the table.
        is_anybody_missed: bool,
    }

    /// Processes with a mark in their environment.
    struct Marked {
        entry: Vec<u8>,
        /// Processes without any environment, for which no further reads are attempted.
        bare: BTreeSet<u32>,
    }

    impl Marked {
        /// Returns whether the program has the mark, or `None` if it has exited.
        #[allow(clippy::disallowed_methods)]
        fn look_at(&mut self, id: u32) -> Option<bool> {
            let mut had_arguments = false;
            let mut bare_looks = 0;
            for _ in 0..MOST_LOOKS {
                let environment = match std::fs::read(format!("/proc/{id}/environ")) {
                    Ok(environment) => environment,
                    // The process belongs to another user, so it is not one of this engine's programs.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Some(false),
                    Err(_) => return None,
                };
                if !environment.is_empty() {
                    return Some(environment.split(|byte| *byte == 0).any(|entry| *entry == self.entry));
                }
                if self.bare.contains(&id) {
                    return Some(false);
                }
                if of(id).is_none_or(|line| line.is_over) {
                    return None;
                }
                // During execve a process briefly has neither environment nor arguments. The arguments were read before the
                // environment; read afterwards, they could belong to the new program.
                bare_looks = if had_arguments { bare_looks + 1 } else { 0 };
                if bare_looks == MOST_LOOKS_AT_BARE {
                    break;
                }
                let arguments = std::fs::read(format!("/proc/{id}/cmdline"));
                had_arguments = arguments.is_ok_and(|text| !text.is_empty());
                std::thread::sleep(BETWEEN_LOOKS);
            }
            self.bare.insert(id);
            Some(false)
        }
    }

    /// Kills every child of this process and the orphans that these leave behind, if this process adopts orphans.
    pub(crate) fn kill_every_child() {
        let has_started = super::NEXT.load(Ordering::Relaxed) > 0;
        if has_started && ADOPTS.load(Ordering::Relaxed) {
            let own = std::process::id();
            rounds(|table| {
                let children = table.iter().filter(|(_, line)| line.parent == own);
                Found {
                    programs: children.map(|(id, _)| *id).collect(),
                    is_anybody_missed: false,
                }
            });
        }
    }

    /// Kills the processes that `find` returns, until a complete table contains no running one. Exited children of this process
    /// are reaped here, because no other code waits for them.
    fn rounds(mut find: impl FnMut(&BTreeMap<u32, Line>) -> Found) {
        let own = std::process::id();
        // Process ids of the previous table. A new process that exits while the table is read may have started one that is missing
        // in it.
        let mut known = BTreeSet::new();
        let mut in_vain = 0;
        for round in 0..MOST_ROUNDS {
            let listed = listed();
            let table = table(&listed);
            if round == 0 {
                reap_orphans(&table);
            }
            let found = find(&table);
            let is_over = |id: &u32| table.get(id).is_none_or(|line| line.is_over);
            let is_anybody_missed =
                found.is_anybody_missed || listed.iter().any(|id| !known.contains(id) && is_over(id));
            known = listed;
            let mut is_anybody_left = false;
            for (id, line) in found.programs.iter().filter_map(|id| Some((*id, table.get(id)?))) {
                let Some(pid) = pid_of(id) else {
                    continue;
                };
                if line.is_over {
                    let is_reaped = line.parent == own && waitpid(Some(pid), WaitOptions::NOHANG).is_ok();
                    tracing::trace!(id, is_reaped, "a descendant of a program has ended");
                } else {
                    // A process that has exited in the meantime may have started another, so another round follows.
                    let is_killed = kill_process(pid, Signal::KILL).is_ok();
                    tracing::trace!(id, is_killed, "a descendant of a program is left");
                    is_anybody_left = true;
                }
            }
            in_vain = if is_anybody_left { 0 } else { in_vain + 1 };
            if !is_anybody_left && !is_anybody_missed || in_vain == MOST_IN_VAIN {
                return;
            }
        }
    }

    /// Reaps the orphans that this process has adopted and that have exited. Without it, one that exits before its mark is read stays
    /// in the process table as long as this process lives.
    fn reap_orphans(table: &BTreeMap<u32, Line>) {
        let own = std::process::id();
        let Some(here) = table.get(&own) else { return };
        for (id, line) in table.iter().filter(|(_, line)| line.is_over && line.parent == own) {
            // The programs that this process starts are in its session, and lead a group or are in its group. They are left to the
            // code that waits for them, because their ids may be reused once they are reaped.
            let is_adopted = line.session != here.session || line.group != *id && line.group != here.group;
            if let Some(pid) = pid_of(*id).filter(|_| is_adopted) {
                let is_reaped = waitpid(Some(pid), WaitOptions::NOHANG).is_ok();
                tracing::trace!(id, is_reaped, "an adopted orphan has ended");
            }
        }
    }

    fn pid_of(id: u32) -> Option<Pid> {
        i32::try_from(id).ok().and_then(Pid::from_raw)
    }

    /// Returns the ids of all visible processes.
    fn listed() -> BTreeSet<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Returns the entries of the processes that still exist.
    fn table(listed: &BTreeSet<u32>) -> BTreeMap<u32, Line> {
        listed.iter().filter_map(|id| Some((*id, of(*id)?))).collect()
    }

    /// Reads a process's entry, or `None` if it has exited.
    fn of(id: u32) -> Option<Line> {
        line(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// Parses `PID (NAME) STATE PARENT ...`; the name may contain any characters.
    fn line(stat: &str) -> Option<Line> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Line {
            is_over: matches!(fields.next()?, "Z" | "X"),
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            is_of_the_kernel: fields.nth(2)?.parse::<u32>().ok()? & OF_THE_KERNEL != 0,
            began: fields.nth(12)?.parse().ok()?,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_table_line_is_parsed_with_any_program_name() {
            let stat = "7 (a) b) Z 1 (x) S 42 6 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9000 1 2";
            let line = line(stat).expect("a line");
            assert_eq!((line.parent, line.is_over, line.began), (42, false, 9000));
            assert_eq!((line.group, line.session), (6, 5));
            assert!(!line.is_of_the_kernel);
            let own = table(&listed()).remove(&std::process::id()).expect("this process");
            assert!(!own.is_over && own.parent == std::os::unix::process::parent_id());
        }
    }
}
