//! What one evaluation may cost: the bytes that it makes, the bytes that it looks at, and the depth of its
//! values.
//!
//! What is made takes memory, what is looked at takes time. A report that goes through its outputs again
//! for each of them looks at much and makes little, so the two have bounds of their own.

use std::cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::value::{Value as Cell, ValueKind};
use minijinja::{Error, ErrorKind};

/// The most bytes that one evaluation may make, and the most that one of its steps may look at. A prompt of
/// a tenth fits no model.
pub(super) const MOST_MADE: usize = 64 << 20;

/// The most bytes that one evaluation may look at: about two seconds of work. A report of
/// 400 kB may go through all of it 5,000 times.
const MOST_LOOKED: usize = 2 << 30;

/// The bytes that a value costs by itself: a list of empty texts costs too.
pub(super) const EACH: usize = 64;

/// The deepest that values may be within each other.
pub(super) const MOST_LEVELS: usize = 64;

thread_local! {
    /// The bytes that may still be made, and looked at.
    static LEFT: cell::Cell<(usize, usize)> = const { cell::Cell::new((0, 0)) };
    static STOP: cell::RefCell<Option<Stop>> = const { cell::RefCell::new(None) };
}

/// Tells the evaluations of a thread to stop. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Lets what is being evaluated end with an error at its next step.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does work whose evaluations end when they are told to.
pub fn until<T>(stop: &Stop, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Stop>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STOP.set(self.0.take());
        }
    }
    let _restore = Restore(STOP.replace(Some(stop.clone())));
    work()
}

/// Fails if the evaluations of this thread are to stop.
pub(super) fn go_on() -> Result<(), Error> {
    let is_stopped = |stop: &Stop| stop.0.load(Ordering::Relaxed);
    match STOP.with_borrow(|stop| stop.as_ref().is_some_and(is_stopped)) {
        true => Err(Error::new(ErrorKind::OutOfFuel, "the template takes too long")),
        false => Ok(()),
    }
}

/// Begins an evaluation on this thread.
pub(super) fn begin() {
    LEFT.set((MOST_MADE, MOST_LOOKED));
}

/// The size of values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Bytes of texts, and those that each value costs by itself.
    pub bytes: usize,
    /// Number of values.
    pub values: usize,
    /// Levels of values within each other.
    pub levels: usize,
}

impl Size {
    /// Adds a value down to a level, itself included: what lies below belongs to another.
    fn add(&mut self, value: &Cell, level: usize, levels: usize) -> Result<(), Error> {
        self.bytes += EACH;
        self.values += 1;
        self.levels = self.levels.max(level);
        if level > MOST_LEVELS {
            let message = format!("values are nested more than {MOST_LEVELS} levels deep");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        if level >= levels {
            return Ok(());
        }
        match value.kind() {
            ValueKind::String => self.bytes += value.as_str().map_or(0, str::len),
            ValueKind::Bytes => self.bytes += value.as_bytes().map_or(0, <[u8]>::len),
            ValueKind::Seq | ValueKind::Map => {
                let is_map = value.kind() == ValueKind::Map;
                for item in value.try_iter()? {
                    self.add(&item, level + 1, levels)?;
                    if is_map {
                        self.add(&value.get_item(&item)?, level + 1, levels)?;
                    }
                }
            }
            // An iterator may give its items only once.
            _ => {}
        }
        if self.bytes > MOST_MADE {
            let most = MOST_MADE >> 20;
            let message =
                format!("one step takes or makes more than {most} MiB: name a part of it");
            return Err(Error::new(ErrorKind::OutOfFuel, message));
        }
        Ok(())
    }
}

/// Charges for looking at values as a whole.
pub(super) fn look(values: &[Cell]) -> Result<Size, Error> {
    let mut size = Size::default();
    values.iter().try_for_each(|value| size.add(value, 0, usize::MAX))?;
    look_at(size.bytes)?;
    Ok(size)
}

/// Charges for looking at bytes.
pub(super) fn look_at(bytes: usize) -> Result<(), Error> {
    go_on()?;
    let (made, looked) = LEFT.get();
    let left = looked.checked_sub(bytes);
    LEFT.set((made, left.unwrap_or(0)));
    left.map(drop).ok_or_else(|| {
        let message = format!(
            "the template looks at more than {} GiB: filter once, with `set`, before a loop",
            MOST_LOOKED >> 30
        );
        Error::new(ErrorKind::OutOfFuel, message)
    })
}

/// Charges for a value that was made, down to a level: 0 is the value alone, whatever it holds.
pub(super) fn made(value: &Cell, levels: usize) -> Result<(), Error> {
    let mut size = Size::default();
    size.add(value, 0, levels)?;
    make(size.bytes)
}

/// Charges for bytes that are made.
pub(super) fn make(bytes: usize) -> Result<(), Error> {
    go_on()?;
    let (made, looked) = LEFT.get();
    let left = made.checked_sub(bytes);
    LEFT.set((left.unwrap_or(0), looked));
    left.map(drop).ok_or_else(too_much)
}

/// Fails if so many bytes cannot be made any more. Charges nothing: what was made is charged.
pub(super) fn fits(bytes: usize) -> Result<(), Error> {
    go_on()?;
    if bytes <= LEFT.get().0 { Ok(()) } else { Err(too_much()) }
}

fn too_much() -> Error {
    let message = format!("the template makes more than {} MiB", MOST_MADE >> 20);
    Error::new(ErrorKind::OutOfFuel, message)
}

/// Returns a list instead of a value that looks for its items elsewhere each time, and charges for it: of
/// forty sums of lists, each the double of the one before, even the length would take an age.
pub(super) fn materialized(value: Cell) -> Result<Cell, Error> {
    if value.kind() != ValueKind::Iterable {
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        make(EACH)?;
        items.push(item);
    }
    Ok(Cell::from(items))
}
