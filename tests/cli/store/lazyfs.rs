//! A file system that discards unsynced data: LazyFS (<https://github.com/dsrhaslab/lazyfs>). It requires the program on the
//! path, FUSE, and permission to mount.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, Command, Stdio};

use crate::folder::Folder;

/// A file system mounted at `disk` in a folder.
pub(crate) struct LazyFs {
    process: Child,
    mounted: String,
    faults: String,
    done: Lines<BufReader<File>>,
}

impl LazyFs {
    /// Mounts the file system, or prints why this is impossible and returns `None`.
    pub(crate) fn mount(folder: &Folder) -> Option<Self> {
        let [mounted, kept, faults, done, config] =
            ["disk", "kept", "faults", "done", "lazyfs.toml"].map(|of| folder.file(of));
        for path in [&mounted, &kept] {
            std::fs::create_dir(path).expect("writable");
        }
        let text = format!(
            "[faults]\nfifo_path = {faults:?}\nfifo_path_completed = {done:?}\n[cache]\napply_eviction = false\n\
             [cache.simple]\ncustom_size = \"0.05gb\"\nblocks_per_page = 1\n\
             [filesystem]\nlog_all_operations = false\nlogfile = \"\"\n"
        );
        std::fs::write(&config, text).expect("writable");
        assert!(
            Command::new("mkfifo")
                .arg(&done)
                .status()
                .is_ok_and(|made| made.success())
        );
        // Opened for writing too: a FIFO with an open writer never reports the end of the file.
        let done = OpenOptions::new().read(true).write(true).open(&done).expect("is there");
        let said = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.file("lazyfs.log"));
        let started = Command::new("lazyfs")
            .args([&mounted, "--config-path", &config])
            .args(["-o", "modules=subdir", "-o", &format!("subdir={kept}"), "-f"])
            .stdin(Stdio::null())
            .stdout(said.expect("writable"))
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            println!("skipped: lazyfs is not installed");
            return None;
        };
        let mut disk = Self {
            process,
            mounted,
            faults,
            done: BufReader::new(done).lines(),
        };
        if disk.is_mounted() {
            return Some(disk);
        }
        println!("skipped: lazyfs can not mount here");
        None
    }

    /// Waits until the file system is mounted or its process has ended, and returns true if it is mounted.
    fn is_mounted(&mut self) -> bool {
        loop {
            let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
            if mounts.contains(&format!(" {} ", self.mounted)) {
                return true;
            }
            if self.process.try_wait().expect("is its parent").is_some() {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Discards the unsynced data.
    pub(crate) fn loses_power(&mut self) {
        let mut faults = OpenOptions::new().write(true).open(&self.faults).expect("it reads");
        faults.write_all(b"lazyfs::clear-cache\n").expect("it reads");
        let said = self.done.next().expect("it is open").expect("text");
        assert_eq!(said, "finished::clear-cache");
    }
}

impl Drop for LazyFs {
    fn drop(&mut self) {
        let asked = Command::new("umount").arg(&self.mounted).status();
        if !asked.is_ok_and(|ended| ended.success()) {
            self.process.kill().unwrap_or(());
        }
        self.process.wait().expect("is its parent");
    }
}
