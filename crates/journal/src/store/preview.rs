//! Previews: the beginning and the end of an output, with a line that says how much is missing
//! between them.
//!
//! Pure.

/// Returns the first and the last `chars` characters of an output of `total` bytes, with a line
/// between them that says how much is missing and names the `place` of the whole. Cuts at a line
/// end if one is near.
pub(super) fn preview(head: &[u8], tail: &[u8], total: u64, chars: usize, place: &str) -> String {
    let starts = char_starts(head);
    let end = starts.get(chars).copied().unwrap_or(head.len());
    let line_end = head[..end].iter().rposition(|b| *b == b'\n').map(|at| at + 1);
    let head = &head[..line_end.filter(|at| *at > end / 2).unwrap_or(end)];

    // The tail may begin in the middle of a character.
    let torn = tail.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
    let tail = &tail[torn..];
    let starts = char_starts(tail);
    let from = starts.len().checked_sub(chars).and_then(|at| starts.get(at)).copied();
    let tail = &tail[from.unwrap_or(if chars == 0 { tail.len() } else { 0 })..];
    let line_start = tail.iter().position(|b| *b == b'\n').map(|at| at + 1);
    let tail = &tail[line_start.filter(|at| *at < tail.len() / 2).unwrap_or(0)..];

    let shown = u64::try_from(head.len() + tail.len()).unwrap_or(u64::MAX);
    let omitted = total.saturating_sub(shown);
    let line_break = if head.is_empty() || head.ends_with(b"\n") { "" } else { "\n" };
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    format!("{head}{line_break}[... {omitted} of {total} bytes omitted; {place} ...]\n{tail}")
}

/// Returns the byte offsets of the characters; an invalid sequence counts as one character, as in
/// the lossy text.
fn char_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        starts.extend(chunk.valid().char_indices().map(|(index, _)| at + index));
        at += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            starts.push(at);
            at += chunk.invalid().len();
        }
    }
    starts
}
