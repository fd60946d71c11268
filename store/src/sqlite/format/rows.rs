//! Encoding of rows. The checksum of a row also covers its key, so that a row under a wrong key is
//! detected.

use super::codec::{Decoder, Encoder, Malformed, checksum};
use crate::content::ContentHash;
use crate::run::{Base, Run, RunStatus, Session, Snapshot, Timer};

const VERSION: u8 = 1;

/// Run with the store's internal data.
#[derive(Clone, Debug)]
pub(in crate::sqlite) struct RunRow {
    pub(in crate::sqlite) run: Run,
    /// Key of the run's records.
    pub(in crate::sqlite) key: u64,
    /// Checksum of the last record, which the next one includes.
    pub(in crate::sqlite) head: u32,
    /// Removed, but still the base of other runs.
    pub(in crate::sqlite) is_hidden: bool,
}

impl RunRow {
    /// Returns the number of the step before the first record that is stored with this run.
    pub(in crate::sqlite) fn base_step(&self) -> u64 {
        self.run.base.as_ref().map_or(0, |base| base.step)
    }

    pub(in crate::sqlite) fn names(&self) -> impl Iterator<Item = &ContentHash> {
        std::iter::once(&self.run.definition).chain(&self.run.contents)
    }

    pub(in crate::sqlite) fn encode(&self) -> Vec<u8> {
        let run = &self.run;
        let mut to = Encoder::with_capacity(128);
        to.byte(VERSION);
        // The flag shares a byte with the status, which has far fewer than 128 values.
        to.byte(u8::from(self.is_hidden) << 7 | status_code(run.status));
        to.number(self.key);
        to.bytes(&self.head.to_le_bytes());
        to.number(u64::from(run.semantics));
        to.number(run.started_at);
        to.number(run.updated_at);
        to.number(run.steps);
        to.text(&run.workflow);
        to.optional_text(run.session.as_deref());
        to.optional_text(run.base.as_ref().map(|base| base.run.as_str()));
        to.number(run.base.as_ref().map_or(0, |base| base.step));
        to.bytes(run.definition.as_bytes());
        hashes(&mut to, &run.contents);
        to.seal(&name(b"run", &run.id)).0
    }

    pub(in crate::sqlite) fn decode(id: &str, bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut from, _) = Decoder::open(bytes, &name(b"run", id))?;
        from.version(VERSION)?;
        let flags = from.byte()?;
        let key = from.number()?;
        let head = from
            .bytes(4)?
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| Malformed::Short)?;
        let run = Run {
            id: id.to_owned(),
            status: RunStatus::ALL
                .get(usize::from(flags & 0x7f))
                .copied()
                .ok_or(Malformed::Value)?,
            semantics: u32::try_from(from.number()?).map_err(|_| Malformed::Value)?,
            started_at: from.number()?,
            updated_at: from.number()?,
            steps: from.number()?,
            workflow: from.text()?,
            session: from.optional_text()?,
            base: {
                let (run, step) = (from.optional_text()?, from.number()?);
                run.map(|run| Base { run, step })
            },
            definition: hash(&mut from)?,
            contents: read_hashes(&mut from)?,
        };
        from.end()?;
        Ok(Self {
            run,
            key,
            head,
            is_hidden: flags & 0x80 != 0,
        })
    }
}

pub(in crate::sqlite) fn encode_session(session: &Session) -> Vec<u8> {
    let mut to = Encoder::with_capacity(session.body.len() + 64);
    to.byte(VERSION);
    to.number(session.version);
    to.number(session.updated_at);
    to.text(&session.run);
    to.text(&session.body);
    hashes(&mut to, &session.contents);
    to.seal(&name(b"session", &session.id)).0
}

pub(in crate::sqlite) fn decode_session(id: &str, bytes: &[u8]) -> Result<Session, Malformed> {
    let (mut from, _) = Decoder::open(bytes, &name(b"session", id))?;
    from.version(VERSION)?;
    let session = Session {
        id: id.to_owned(),
        version: from.number()?,
        updated_at: from.number()?,
        run: from.text()?,
        body: from.text()?,
        contents: read_hashes(&mut from)?,
    };
    from.end()?;
    Ok(session)
}

/// Encodes a snapshot. `follows` is the checksum of the step's record: a snapshot of another journal is detected.
pub(in crate::sqlite) fn encode_snapshot(key: u64, follows: u32, snapshot: &Snapshot) -> Vec<u8> {
    let mut to = Encoder::with_capacity(snapshot.body.len() + 32);
    to.byte(VERSION);
    to.number(snapshot.step);
    to.bytes(&follows.to_le_bytes());
    to.text(&snapshot.body);
    to.seal(&name(b"snapshot", &key.to_string())).0
}

/// Decodes a snapshot. Returns it with the checksum of its step's record.
pub(in crate::sqlite) fn decode_snapshot(key: u64, bytes: &[u8]) -> Result<(Snapshot, u32), Malformed> {
    let (mut from, _) = Decoder::open(bytes, &name(b"snapshot", &key.to_string()))?;
    from.version(VERSION)?;
    let step = from.number()?;
    let follows = from
        .bytes(4)?
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| Malformed::Short)?;
    let body = from.text()?;
    from.end()?;
    Ok((Snapshot { step, body }, follows))
}

pub(in crate::sqlite) fn encode_meta(key: &str, value: &str) -> Vec<u8> {
    let mut to = Encoder::with_capacity(value.len() + 16);
    to.byte(VERSION);
    to.text(value);
    to.seal(&name(b"meta", key)).0
}

pub(in crate::sqlite) fn decode_meta(key: &str, bytes: &[u8]) -> Result<String, Malformed> {
    let (mut from, _) = Decoder::open(bytes, &name(b"meta", key))?;
    from.version(VERSION)?;
    let value = from.text()?;
    from.end()?;
    Ok(value)
}

pub(in crate::sqlite) fn timer_sum(timer: &Timer) -> u32 {
    checksum(&[
        b"timer",
        &timer.due.to_le_bytes(),
        timer.run.as_bytes(),
        // Separates the run from the effect, so that no other pair has the same bytes.
        &[0],
        timer.effect.as_bytes(),
    ])
}

fn name(kind: &[u8], name: &str) -> Vec<u8> {
    // The separators distinguish the kind from the name.
    [kind, &[0], name.as_bytes(), &[0]].concat()
}

pub(in crate::sqlite) fn status_code(status: RunStatus) -> u8 {
    RunStatus::ALL
        .iter()
        .position(|known| *known == status)
        .map_or(0, |at| at as u8)
}

fn hashes(to: &mut Encoder, hashes: &[ContentHash]) {
    to.number(hashes.len() as u64);
    for hash in hashes {
        to.bytes(hash.as_bytes());
    }
}

fn read_hashes(from: &mut Decoder<'_>) -> Result<Vec<ContentHash>, Malformed> {
    let count = from.number()?;
    // No capacity from `count`, which may be damaged: each hash is checked against the remaining bytes.
    (0..count).map(|_| hash(from)).collect()
}

fn hash(from: &mut Decoder<'_>) -> Result<ContentHash, Malformed> {
    let bytes = from.bytes(ContentHash::LEN as u64)?;
    bytes
        .try_into()
        .map(ContentHash::from_bytes)
        .map_err(|_| Malformed::Short)
}
