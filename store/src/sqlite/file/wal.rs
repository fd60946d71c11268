//! Check of the write-ahead log before SQLite reads it.
//!
//! SQLite ends the log at the first frame with a wrong checksum. That is right after a power cut, where the last
//! transaction may be torn, but a changed bit in the middle would silently discard every later transaction. A
//! transaction is synced before the next one is written. So a bad frame that is followed by a valid frame of a later transaction is
//! damage. Only damage in the last transaction cannot be distinguished from an unacknowledged write.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use crate::sqlite::PAGE_SIZE;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const FRAME: usize = FRAME_HEADER + PAGE_SIZE as usize;
// The lowest bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// Returns the reason why the log is damaged, if it is. A missing or empty log is valid. Needs memory for one frame only, however
/// long the log is.
pub(in crate::sqlite) fn check(path: &Path) -> io::Result<Option<String>> {
    let mut log = match File::open(path) {
        Ok(log) => log,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0; HEADER];
    if !is_read(&mut log, &mut header)? {
        // A log that is shorter than its header has no transaction.
        return Ok(None);
    }
    let header = &header[..];
    let big_endian = word(header, 0) & 1 == 1;
    let is_whole = word(header, 0) & !1 == MAGIC && sum(&header[..24], (0, 0), big_endian) == stored(header, 24);
    let mut damaged = None;
    if is_whole {
        damaged = damaged_frame(header, Frames::of(&mut log)?, big_endian)?;
    } else {
        // The byte order is part of the damaged header: try both.
        for big_endian in [false, true] {
            if damaged.is_none() && has_whole_frame(header, Frames::of(&mut log)?, big_endian)? {
                damaged = Some(0);
            }
        }
    }
    Ok(damaged.map(|frame| {
        let what = if frame == 0 {
            "its header".to_owned()
        } else {
            format!("frame {frame}")
        };
        format!("write-ahead log: {what} is damaged, and later frames are intact")
    }))
}

/// Iterator over the frames of a log.
struct Frames<'a> {
    log: BufReader<&'a mut File>,
    frame: Vec<u8>,
}

impl<'a> Frames<'a> {
    fn of(log: &'a mut File) -> io::Result<Self> {
        log.seek(SeekFrom::Start(HEADER as u64))?;
        // A log may have gigabytes, so it is read once in large pieces.
        let (log, frame) = (BufReader::with_capacity(1 << 16, log), vec![0; FRAME]);
        Ok(Self { log, frame })
    }

    /// Returns the next frame; none if no complete frame remains.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let is_read = is_read(&mut self.log, &mut self.frame)?;
        Ok(is_read.then_some(&self.frame))
    }
}

/// Fills a buffer. Returns false at the end of the file.
fn is_read(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the number of the first bad frame that is followed by a valid frame of a later transaction.
fn damaged_frame(header: &[u8], mut frames: Frames<'_>, big_endian: bool) -> io::Result<Option<usize>> {
    let mut before = stored(header, 24);
    // First bad frame, and whether its transaction has ended since.
    let mut bad: Option<(usize, bool)> = None;
    let mut number = 0;
    while let Some(frame) = frames.next()? {
        number += 1;
        // Frames with other salts are left over from before the log was restarted.
        let is_ours = frame[8..16] == header[16..24];
        let is_whole = is_ours && follows(before, frame, big_endian) == stored(frame, 16);
        let ends = is_ours && word(frame, 4) != 0;
        match &mut bad {
            None if is_whole => {}
            // The first bad frame. It may be the torn end of an unfinished transaction.
            None => bad = Some((number, ends)),
            // A valid frame after the end of the bad frame's transaction belongs to a later one, which was written after a sync.
            Some((damaged, true)) if is_whole => return Ok(Some(*damaged)),
            Some((_, has_ended)) => *has_ended |= ends && is_whole,
        }
        // The stored value and not the computed one, so that frames after a bad one can still be verified.
        before = stored(frame, 16);
    }
    Ok(None)
}

fn has_whole_frame(header: &[u8], mut frames: Frames<'_>, big_endian: bool) -> io::Result<bool> {
    let mut before = stored(header, 24);
    while let Some(frame) = frames.next()? {
        if follows(before, frame, big_endian) == stored(frame, 16) {
            return Ok(true);
        }
        before = stored(frame, 16);
    }
    Ok(false)
}

/// Computes the checksum that a frame should have.
fn follows(before: (u32, u32), frame: &[u8], big_endian: bool) -> (u32, u32) {
    // SQLite excludes the salts and the checksum itself.
    sum(&frame[FRAME_HEADER..], sum(&frame[..8], before, big_endian), big_endian)
}

fn stored(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at), word(bytes, at + 4))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Continues SQLite's log checksum from `sum`.
fn sum(bytes: &[u8], sum: (u32, u32), big_endian: bool) -> (u32, u32) {
    bytes.chunks_exact(8).fold(sum, |(mut first, mut second), chunk| {
        let read = |at| {
            if big_endian {
                word(chunk, at)
            } else {
                word(chunk, at).swap_bytes()
            }
        };
        first = first.wrapping_add(read(0)).wrapping_add(second);
        second = second.wrapping_add(read(4)).wrapping_add(first);
        (first, second)
    })
}
