//! Where an open question stands at the bottom of a terminal, with the status area above it, and the moves of the cursor
//! that print above both.
//!
//! Pure. A character counts with the most columns that it may take: what is moved to is then never within the question,
//! whatever its text holds.

use super::super::rows::rows;
use super::super::stream::{Sketch, harmless};
use crate::printable::columns;

/// The question on the screen.
#[derive(Debug)]
pub(super) struct Block {
    /// The width and the height of the terminal when it began.
    size: (usize, usize),
    /// Number of its rows above the line that is typed.
    above: usize,
    /// Columns of the line that is typed, the words before it included.
    columns: usize,
    /// The status area.
    area: Vec<String>,
}

impl Block {
    pub(super) fn new(size: (usize, usize)) -> Self {
        Self { size, above: 0, columns: 0, area: Vec::new() }
    }

    /// Returns true if the terminal still has the size for which the rows were counted.
    pub(super) fn fits(&self, size: Option<(usize, usize)>) -> bool {
        size == Some(self.size)
    }

    /// Returns the number of rows of the terminal that the question leaves.
    pub(super) fn left(&self) -> usize {
        self.size.1.saturating_sub(self.up() + 1)
    }

    /// Returns true if lines can be printed above: the question and the area leave a row for them.
    pub(super) fn takes_lines(&self) -> bool {
        self.left() > self.area.len()
    }

    /// Returns the number of rows from the first of the question to that of the cursor.
    fn up(&self) -> usize {
        self.above + self.columns / self.size.0
    }

    /// Prints a row of the question.
    pub(super) fn tell(&mut self, row: &str) -> Sketch {
        let sketch = self.make_room(1);
        self.above += 1;
        sketch.text(row).text("\n")
    }

    /// Prints the words before the line that is typed.
    pub(super) fn prompt(&mut self, words: &str) -> Sketch {
        let wide = wide(words);
        let sketch = self.make_room(wide / self.size.0);
        self.columns = wide;
        self.wrapped(sketch.text(words))
    }

    /// Prints a character that was typed.
    pub(super) fn add(&mut self, typed: char) -> Sketch {
        let sketch = self.make_room(1);
        self.columns += columns(typed);
        self.wrapped(sketch.text(typed.encode_utf8(&mut [0; 4])))
    }

    /// Takes a text from the end of the line that is typed.
    pub(super) fn erase(&mut self, erased: &str) -> Sketch {
        let (width, left) = (self.size.0, self.columns.saturating_sub(wide(erased)));
        let sketch = up(self.columns / width - left / width, Sketch::default());
        self.columns = left;
        sketch.steer(&format!("\x1b[{}G\x1b[J", left % width + 1))
    }

    /// Ends the line that is typed.
    pub(super) fn enter(&mut self) -> Sketch {
        let sketch = self.make_room(1);
        self.above = self.up() + 1;
        self.columns = 0;
        sketch.text("\n")
    }

    /// Prints a row above the question and the area.
    pub(super) fn print(&self, row: &str) -> Sketch {
        self.insert(row, Sketch::default())
    }

    /// Shows these lines as the area, as many as there is space for.
    pub(super) fn show(&mut self, lines: &[String]) -> Sketch {
        // A row is left for what is printed above.
        let lines = &lines[..lines.len().min(self.left().saturating_sub(1))];
        let mut sketch = Sketch::default();
        while self.area.len() < lines.len() {
            sketch = self.insert("", sketch);
            self.area.insert(0, String::new());
        }
        if self.area.len() > lines.len() {
            sketch = self.cut(self.area.len() - lines.len(), sketch);
        }
        for (at, line) in lines.iter().enumerate() {
            // One that fills the last column makes some terminals wrap.
            let row = rows(std::slice::from_ref(line), self.size.0 - 1).swap_remove(0);
            if self.area[at] != row {
                let above = self.up() + self.area.len() - at;
                sketch =
                    up(above, sketch.steer("\x1b7")).steer("\r\x1b[2K").text(&row).steer("\x1b8");
                self.area[at] = row;
            }
        }
        sketch
    }

    /// Takes the area away.
    pub(super) fn clear(&mut self) -> Sketch {
        self.cut(self.area.len(), Sketch::default())
    }

    /// Takes the first rows of the area away; what follows them moves up.
    fn cut(&mut self, count: usize, sketch: Sketch) -> Sketch {
        if count == 0 {
            return sketch;
        }
        let above = self.up() + self.area.len();
        self.area.drain(..count);
        let sketch = up(above, sketch.steer("\x1b7"));
        up(count, sketch.steer(&format!("\r\x1b[{count}M\x1b8")))
    }

    /// Inserts a row above the area, and moves what follows it down.
    fn insert(&self, row: &str, sketch: Sketch) -> Sketch {
        // First a row is made below, by scrolling if there is none: this feed keeps the column.
        let sketch = up(self.up() + self.area.len(), sketch.steer("\x0b\x1b[A\x1b7"));
        sketch.steer("\r\x1b[L").text(row).steer("\x1b8\x1b[B")
    }

    /// Takes the area away if it would leave the screen with so many more rows of the question.
    fn make_room(&mut self, more: usize) -> Sketch {
        if self.left() < self.area.len() + more { self.clear() } else { Sketch::default() }
    }

    /// Moves the cursor to the next row where a text ends at the last column: a terminal waits there until more comes.
    fn wrapped(&self, sketch: Sketch) -> Sketch {
        let ends_row = self.columns > 0 && self.columns.is_multiple_of(self.size.0);
        if ends_row { sketch.steer(" \r") } else { sketch }
    }
}

/// Moves the cursor up.
fn up(rows: usize, sketch: Sketch) -> Sketch {
    if rows == 0 { sketch } else { sketch.steer(&format!("\x1b[{rows}A")) }
}

/// Returns the columns of a text as it is printed.
fn wide(text: &str) -> usize {
    harmless(text).chars().map(columns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal on which a question stands.
    struct Stage {
        terminal: vt100::Parser,
        block: Block,
    }

    impl Stage {
        fn new(rows: u16, columns: u16) -> Self {
            let terminal = vt100::Parser::new(rows, columns, 100);
            Self { terminal, block: Block::new((columns.into(), rows.into())) }
        }

        fn draw(&mut self, made: impl FnOnce(&mut Block) -> Sketch) {
            let sketch = made(&mut self.block);
            self.terminal.process(sketch.as_str().replace('\n', "\r\n").as_bytes());
        }

        fn types(&mut self, text: &str) {
            text.chars().for_each(|typed| self.draw(|block| block.add(typed)));
        }

        fn shown(&self) -> Vec<String> {
            let (_, columns) = self.terminal.screen().size();
            let rows = self.terminal.screen().rows(0, columns);
            rows.map(|row| row.trim_end().to_owned()).filter(|row| !row.is_empty()).collect()
        }
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn lines_and_the_area_go_on_above_a_question_and_what_is_typed_stays() {
        // With space below the question, and at the bottom of the terminal.
        for rows in [20, 5] {
            let mut stage = Stage::new(rows, 20);
            stage.terminal.process(b"begun\r\n");
            stage.draw(|block| block.tell("may it?"));
            stage.draw(|block| block.prompt("allow? "));
            stage.types("n be");
            stage.draw(|block| block.show(&lines(&["tasks 0/1", "one"])));
            stage.draw(|block| block.print("first"));
            stage.types("ca");
            stage.draw(|block| block.show(&lines(&["tasks 1/2"])));
            stage.draw(|block| block.print("second"));
            stage.draw(|block| block.erase("a"));
            let all = ["begun", "first", "second", "tasks 1/2", "may it?", "allow? n bec"];
            let from = all.len().saturating_sub(usize::from(rows));
            assert_eq!(stage.shown(), all[from..]);
            let (_, column) = stage.terminal.screen().cursor_position();
            assert_eq!(column, 12, "behind what was typed");
            stage.draw(Block::enter);
            stage.draw(Block::clear);
            stage.terminal.process(b"after");
            let shown = stage.shown();
            assert!(
                shown.ends_with(&lines(&["second", "may it?", "allow? n bec", "after"])),
                "{shown:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_typed_over_several_rows_stays_whole() {
        let mut stage = Stage::new(8, 10);
        stage.draw(|block| block.tell("may it?"));
        stage.draw(|block| block.prompt("allow? "));
        // To the last column, over it, and back.
        stage.types("abc");
        stage.draw(|block| block.show(&lines(&["area"])));
        stage.types("defghijklmnop");
        stage.draw(|block| block.print("line"));
        stage.draw(|block| block.show(&lines(&["other"])));
        assert_eq!(stage.shown(), ["line", "other", "may it?", "allow? abc", "defghijklm", "nop"]);
        stage.draw(|block| block.erase("defghijklmnop"));
        stage.draw(|block| block.print("more"));
        assert_eq!(stage.shown(), ["line", "more", "other", "may it?", "allow? abc"]);
        stage.types("d");
        assert_eq!(stage.shown().last().map(String::as_str), Some("d"));
    }

    #[test]
    fn a_question_that_fills_the_screen_is_never_pushed_out_of_it() {
        let mut stage = Stage::new(6, 20);
        stage.draw(|block| block.tell("row 1"));
        stage.draw(|block| block.show(&lines(&["a", "b", "c", "d", "e", "f"])));
        assert_eq!(stage.shown(), ["a", "b", "c", "row 1"]);
        for number in 2..=5 {
            stage.draw(|block| block.tell(&format!("row {number}")));
        }
        stage.draw(|block| block.prompt("allow? "));
        stage.draw(|block| block.show(&lines(&["a"])));
        assert!(!stage.block.takes_lines());
        assert_eq!(stage.shown(), ["row 1", "row 2", "row 3", "row 4", "row 5", "allow?"]);
    }
}
