//! The saved folds of a run as files of a folder, each named after the record that follows it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::crash::{self, Point};
use crate::disk;
use crate::journal::driving::SavedFolds;
use crate::journal::line::{self, Position};

/// Number of files that are kept: a power cut may damage the newest one.
const KEPT: usize = 2;

/// A folder of saved folds.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) folder: PathBuf,
    /// The journal of which they are.
    pub(super) journal: PathBuf,
}

impl Shelf {
    /// Lists the files by number, smallest first.
    fn numbered(&self) -> BTreeMap<u64, PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let numbered = entries.filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_suffix(".json")?.parse().ok()?;
            Some((number, entry.path()))
        });
        numbered.collect()
    }
}

impl SavedFolds for Shelf {
    fn newest_first(&self) -> Box<dyn Iterator<Item = String> + '_> {
        let paths = self.numbered().into_values().rev();
        Box::new(paths.filter_map(|path| disk::read_text(&path).ok()))
    }

    /// Compares the checksum in the line just before the place.
    fn fits(&self, at: &Position) -> bool {
        let look = || -> io::Result<bool> {
            let before = at.offset.checked_sub(line::TAIL as u64);
            let Some(before) = before else { return Ok(false) };
            let mut journal = disk::open(&self.journal)?;
            journal.seek(SeekFrom::Start(before))?;
            let mut tail = [0; line::TAIL];
            journal.read_exact(&mut tail)?;
            Ok(line::recorded_crc(&tail) == Some(at.crc))
        };
        look().unwrap_or(false)
    }

    fn keep(&self, seq: u64, text: &str) -> io::Result<()> {
        let (path, scratch) = (self.folder.join(format!("{seq}.json")), self.folder.join("new"));
        let mut file = disk::make_anew(&scratch)?;
        let (half, rest) = text.as_bytes().split_at(text.len() / 2);
        let written = disk::write_all(&mut file, half);
        crash::pass(Point::HalfSnapshot);
        let written = written.and_then(|()| disk::write_all(&mut file, rest));
        let written = written.and_then(|()| fs::rename(&scratch, path));
        if written.is_err() {
            // A scratch file that stays only takes space, until the next one removes it.
            let _ = fs::remove_file(&scratch);
        }
        written?;
        crash::pass(Point::AfterSnapshot);
        for (_, path) in self.numbered().iter().rev().skip(KEPT) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn forget(&self) {
        for path in self.numbered().into_values() {
            // A file that stays is harmless: the journal no longer has the checksum that it names.
            let _ = fs::remove_file(path);
        }
    }
}
