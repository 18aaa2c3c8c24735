//! Estimates the tokens of a text without a tokenizer.
//!
//! One pass; the cost of each character follows from its script and its left neighbour. Present
//! tokenizers are byte-pair encoders over text that is first split in much the same way: a word
//! includes the space before it, digits are grouped by three, runs of signs and of blanks are
//! joined, and text that is rare in the training data falls apart into letters or bytes. Rareness
//! is also what separates words from identifiers, keys and base64: words consist of the letter
//! pairs of [`PAIRS`].
//!
//! The costs were fitted to the larger of two counts, those of the public vocabularies
//! `cl100k_base` and `o200k_base`, over prose in a dozen languages, code, logs, tables, JSON and
//! encoded bytes. There the estimate is at most a fifth under that count, mostly within a twentieth
//! of it; where the two differ by more than a factor of two (Greek, Hebrew, Arabic, Indic, Thai) it
//! lies between them. The tables in the tests hold what they count. Newer tokenizers of other
//! families count up to a third more; the ratio of [`super::Measure`] corrects that.
//!
//! In a release build this takes one to two nanoseconds a byte.

/// Unit of the costs below: they are in hundredths of a token.
const TOKEN: u64 = 100;

/// Cost of the first letter of a word.
const WORD: u64 = 100;
/// Cost of a word's first letter right after a sign, which many words include: `.len`, `(self`.
const WORD_AFTER_SIGN: u64 = 50;
/// Cost of a capital within a word: the next part of `camelCase`.
const PART: u64 = 65;
/// Number of letters of a word that the cost of the first letter covers.
const WORD_LETTERS: u32 = 5;
/// Cost of each further letter.
const LETTER: u64 = 7;
/// Cost of each letter that makes a pair which English words hardly have.
const RARE_PAIR: u64 = 100;
/// Extra cost of a letter of the Latin script beyond ASCII.
const ACCENTED: u64 = 55;
/// Cost of up to three digits.
const DIGITS: u64 = 100;
/// Cost of a space before a digit: no word includes it.
const SPACE_BEFORE_DIGIT: u64 = 100;
/// Cost of a sign.
const SIGN: u64 = 100;
/// Cost of a sign after another sign: `);` and `":"` are one token each.
const SIGN_AFTER_SIGN: u64 = 15;
/// Cost of a character that repeats the one before: rules of `-` or `=` are few tokens.
const REPEATED: u64 = 13;
/// Cost of a tab, or of the second space in a row: the run of blanks is a token.
const BLANKS: u64 = 100;
/// Cost of each blank that makes the run longer.
const BLANK: u64 = 1;
/// Cost of the end of a line.
const LINE: u64 = 65;
/// Cost of the end of a line after a sign, which includes it.
const LINE_AFTER_SIGN: u64 = 3;

/// For each letter, the letters that follow it in English words and in code: the 293 pairs that
/// make up 98.5 % of all pairs in a book, in documentation and in the names of two standard
/// libraries.
const PAIRS: [u32; 26] = [
    after(b"bcdfgiklmnprstuvwxy"),
    after(b"aeilorsuy"),
    after(b"acefhiklorstu"),
    after(b"abdeilorstuy"),
    after(b"abcdefgiklmnpqrstvwxy"),
    after(b"aefgilnorstu"),
    after(b"aeghilnorstu"),
    after(b"aeiortu"),
    after(b"abcdefgklmnoprstvxz"),
    after(b"es"),
    after(b"eis"),
    after(b"adefilnopstuy"),
    after(b"abdeilmopsu"),
    after(b"acdefgiklnopstuvy"),
    after(b"abcdefgiklmnoprstuvw"),
    after(b"aeiloprstuy"),
    after(b"u"),
    after(b"acdefgiklmnoprstuvy"),
    after(b"acehiklnoprstuy"),
    after(b"acdefhilmoprstuwyz"),
    after(b"abcdefgilmnprst"),
    after(b"aei"),
    after(b"aehinors"),
    after(b"aceipt"),
    after(b"enopst"),
    after(b"e"),
];

const fn after(letters: &[u8]) -> u32 {
    let (mut set, mut at) = (0, 0);
    while at < letters.len() {
        set |= 1 << (letters[at] - b'a');
        at += 1;
    }
    set
}

/// Returns true if the second letter, an ASCII one, follows the first in English words.
fn is_common(first: char, second: char) -> bool {
    let at = |letter: char| (letter as usize | 0x20).wrapping_sub(usize::from(b'a'));
    PAIRS.get(at(first)).is_some_and(|set| set >> at(second) & 1 == 1)
}

/// Returns the estimated tokens of a text.
#[must_use]
pub fn estimate(text: &str) -> u64 {
    let mut scan = Scan { last: Last::Nothing, before: '\0', run: 0 };
    let (bytes, mut at, mut cost) = (text.as_bytes(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        if byte.is_ascii_lowercase() && scan.before.is_ascii_lowercase() {
            let letters = scan.letters(&bytes[at..]);
            (at, cost) = (at + letters.0, cost + letters.1);
        } else if byte.is_ascii() {
            (at, cost) = (at + 1, cost + scan.ascii(*byte));
        } else {
            let Some(c) = text[at..].chars().next() else { break };
            (at, cost) = (at + c.len_utf8(), cost + scan.step(c));
        }
    }
    cost.div_ceil(TOKEN)
}

/// The cost of a letter in lower case within the first letters of a word, by the letter before and its own, in
/// rows of 32.
const PAIR_COSTS: [u8; 1024] = {
    let mut costs = [RARE_PAIR as u8; 1024];
    let mut first = 0;
    while first < 26 {
        let mut second = 0;
        while second < 26 {
            if PAIRS[first] >> second & 1 == 1 {
                costs[first * 32 + second] = 0;
            } else if first == second {
                costs[first * 32 + second] = REPEATED as u8;
            }
            second += 1;
        }
        first += 1;
    }
    costs
};

/// Kind of the character that the text so far ends with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Lower,
    Upper,
    Digit,
    Sign,
    /// One space, whose cost depends on the next character.
    Space,
    Blanks,
    Line,
    Foreign,
}

/// The kinds of the ASCII characters; a blank is a space here.
const KINDS: [Last; 128] = {
    let mut kinds = [Last::Sign; 128];
    let mut at = 0;
    while at < 128 {
        kinds[at] = match at as u8 {
            b'a'..=b'z' => Last::Lower,
            b'A'..=b'Z' => Last::Upper,
            b'0'..=b'9' => Last::Digit,
            b' ' | b'\t' => Last::Space,
            b'\n' | b'\r' => Last::Line,
            _ => Last::Sign,
        };
        at += 1;
    }
    kinds
};

struct Scan {
    last: Last,
    before: char,
    /// Letters or digits in the current run.
    run: u32,
}

impl Scan {
    /// Takes the letters in lower case that go on with a word after such a letter: most texts consist of them.
    /// Returns their number and their cost, which is that of one [`step`](Self::step) after the other.
    fn letters(&mut self, bytes: &[u8]) -> (usize, u64) {
        let letter = |byte: u8| usize::from(byte.wrapping_sub(b'a'));
        let (mut run, mut before) = (self.run, letter(self.before as u8));
        let (mut cost, mut taken) = (0, 0);
        for byte in bytes {
            let now = letter(*byte);
            if now >= 26 {
                break;
            }
            run += 1;
            let pair = u64::from(PAIR_COSTS[(before * 32 + now) & 1023]);
            cost += if pair == 0 && run > WORD_LETTERS { LETTER } else { pair };
            before = now;
            taken += 1;
        }
        (self.run, self.before) = (run, char::from(b'a' + before as u8));
        (taken, cost)
    }

    /// Takes an ASCII character, of which most texts consist.
    #[inline]
    fn ascii(&mut self, byte: u8) -> u64 {
        let (kind, c) = (KINDS[usize::from(byte & 127)], char::from(byte));
        let (last, cost) = match kind {
            Last::Lower | Last::Upper => (kind, self.letter(c, kind)),
            Last::Digit => (kind, self.digit()),
            Last::Space => self.blank(c),
            Last::Line => (kind, self.line()),
            _ => (Last::Sign, self.sign(c)),
        };
        (self.last, self.before) = (last, c);
        cost
    }

    fn step(&mut self, c: char) -> u64 {
        let (last, cost) = match c {
            '\0'..='\x7f' => return self.ascii(c as u8),
            'À'..='ɏ' | 'Ḁ'..='ỿ' => (Last::Lower, ACCENTED + self.letter(c, Last::Lower)),
            _ if c == self.before => (Last::Foreign, foreign(c).min(REPEATED)),
            _ => (Last::Foreign, foreign(c)),
        };
        (self.last, self.before) = (last, c);
        cost
    }

    fn letter(&mut self, c: char, case: Last) -> u64 {
        let goes_on = match self.last {
            Last::Lower => case == Last::Lower,
            Last::Upper => true,
            _ => false,
        };
        if !goes_on {
            self.run = 1;
            return match self.last {
                Last::Lower => PART,
                Last::Sign => WORD_AFTER_SIGN,
                _ => WORD,
            };
        }
        self.run += 1;
        if c.is_ascii() && !is_common(self.before, c) {
            return if c == self.before { REPEATED } else { RARE_PAIR };
        }
        if self.run > WORD_LETTERS { LETTER } else { 0 }
    }

    fn digit(&mut self) -> u64 {
        self.run = if self.last == Last::Digit { self.run % 3 + 1 } else { 1 };
        match (self.run, self.last) {
            (1, Last::Space) => SPACE_BEFORE_DIGIT + DIGITS,
            (1, _) => DIGITS,
            _ => 0,
        }
    }

    fn blank(&self, c: char) -> (Last, u64) {
        match (self.last, c) {
            (Last::Blanks, _) => (Last::Blanks, BLANK),
            (Last::Space, _) | (_, '\t') => (Last::Blanks, BLANKS),
            _ => (Last::Space, 0),
        }
    }

    fn line(&self) -> u64 {
        match self.last {
            Last::Line => REPEATED,
            Last::Sign => LINE_AFTER_SIGN,
            _ => LINE,
        }
    }

    fn sign(&self, c: char) -> u64 {
        match self.last {
            Last::Sign if c == self.before => REPEATED,
            Last::Sign => SIGN_AFTER_SIGN,
            _ => SIGN,
        }
    }
}

/// Returns the cost of a character of another script. The two figures after a script's name are the
/// costs of one of its characters in `cl100k_base` and in `o200k_base`.
fn foreign(c: char) -> u64 {
    match u32::from(c) {
        // Signs of Latin-1, modifier letters and combining accents.
        0x0080..=0x00BF | 0x02B0..=0x036F => 100,
        // Greek 109, 43. Cyrillic 52, 31.
        0x0370..=0x03FF | 0x1F00..=0x1FFF => 80,
        0x0400..=0x052F => 56,
        // Hebrew 125, 48. Arabic 83, 39.
        0x0590..=0x05FF => 85,
        0x0600..=0x077F => 70,
        // The scripts of India 131, 35. Thai 104, 48.
        0x0900..=0x0DFF => 80,
        0x0E00..=0x0EFF => 85,
        // Dashes and quotation marks.
        0x2000..=0x206F => 60,
        // Arrows, operators and dingbats 165, 196. Lines of boxes 128, 117.
        0x2070..=0x24FF | 0x25A0..=0x2BFF => 180,
        0x2500..=0x259F => 130,
        // Punctuation of CJK and wide forms.
        0x3000..=0x303F | 0xFF00..=0xFFEF => 60,
        // Kana 105, 70. Han 117, 85. Hangul 119, 72.
        0x3040..=0x30FF => 105,
        0x4E00..=0x9FFF => 117,
        0x1100..=0x11FF | 0xAC00..=0xD7AF => 119,
        // Variation selectors.
        0xFE00..=0xFE0F => 60,
        // Emoji and rare scripts: nearly a token a byte, 336, 202.
        _ => 300,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts with what `cl100k_base` and `o200k_base` count.
    const ALIKE: [(&str, u64, u64); 15] = [
        (
            "The supervisor owns the run. It starts a task when everything it waits for has \
         ended, restarts an agent that crashed, and writes down what happened before anybody \
         is told. A conversation that grows too long is cut at the boundaries of its \
         exchanges, and what was taken out can be read back at any time.",
            63,
            63,
        ),
        (
            "Der Aufseher besitzt den Lauf. Er beginnt eine Aufgabe, sobald alles abgeschlossen \
         ist, worauf sie wartet, startet einen abgestürzten Agenten neu und schreibt auf, \
         was geschehen ist, bevor es jemand erfährt. Ein zu langes Gespräch wird an den \
         Grenzen seiner Wortwechsel gekürzt.",
            82,
            61,
        ),
        (
            r#"impl<T: Clone> Ring<T> {
    pub fn push(&mut self, value: T) -> Result<(), Full> {
        if self.items.len() >= self.capacity {
            return Err(Full { capacity: self.capacity, rejected: self.rejected + 1 });
        }
        self.items.push_back(value);
        self.high_water = self.high_water.max(self.items.len());
        Ok(())
    }
}
"#,
            85,
            85,
        ),
        (
            r#"def read_config(path, *, default=None):
    """Return the settings at ``path``."""
    try:
        with open(path, encoding="utf-8") as handle:
            return {key.strip(): value for key, _, value in (line.partition("=") for line in handle)}
    except FileNotFoundError:
        return default or {}
"#,
            68,
            71,
        ),
        (
            r#"2026-03-01T12:00:04.113Z INFO  [worker-3] com.example.store.PgPool: request id=9f86d081 took 35ms status=200 path=/api/v1/items/48213 from 10.0.17.201
2026-03-01T12:00:04.871Z ERROR [worker-1] com.example.store.ItemHandler: request id=b94d27b9 took 5021ms status=504 path=/api/v1/items/7 from 10.0.3.54
thread 'main' panicked at src/store/pool.rs:214:9: called `Option::unwrap()` on a `None` value
"#,
            153,
            154,
        ),
        (
            r#"{"type":"object","properties":{"path":{"type":"string","description":"The file, from the root of the workspace."},"limit":{"type":"integer","minimum":1,"maximum":2000},"offset":{"type":"integer"}},"required":["path"],"additionalProperties":false}"#,
            57,
            58,
        ),
        (
            r#"-rw-r--r-- 1 root root  4210 Mar  1 12:00 Cargo.toml
drwxr-xr-x 2 root root  4096 Mar  1 12:03 benches
-rw-r--r-- 1 root root 88123 Feb 27 09:41 Cargo.lock
0.8213,-91.2290,17.0031,553.9102,-0.0007
482.1100,3.1416,-22.9181,0.5772,1024.0000
"#,
            124,
            124,
        ),
        (
            "bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB1L9RIvNEVUxTveLruM0rfj0WAK1jHDhaXXzOI8d4VFmt\
         vBtMkA/+SNV1tdpcY4BAEl9l2w/j4kSUt26phkV9mGCE/tCLl4r019GWp0RqhrWACeY2thHbFiEbZamq3/KcXl\
         LZxQjFAjRzRNjAetkcvWBor8df9ikvBioJyjgcieced7mprp4wsNvbb1EKJk753ngVAde2uSronrBZxat0PbZ1\
         humPrSfaC5lovAOaHvNMk5ubjlI6i++J1HhgjF7PY=",
            209,
            201,
        ),
        (
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d4bf5122f344554c53bde2e\
         bb8cd2b7e3d1600ad631c385a5d7cce23c7785459adbc1b4c900ffe48d575b5da5c638040125f65db0fe3e\
         24494b76ea986457d986084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5",
            141,
            142,
        ),
        (
            "监督者拥有整个运行。当一个任务所等待的一切都结束时，它就启动该任务；\
         它会重新启动崩溃的代理，并在告诉任何人之前记录发生的事情。\
         过长的对话会在交流的边界处被截断，而被取出的内容随时可以读回。",
            99,
            68,
        ),
        (
            "スーパーバイザーは実行全体を所有します。タスクが待っているものがすべて終わると、\
         そのタスクを開始し、クラッシュしたエージェントを再起動し、\
         誰かに知らせる前に起きたことを記録します。長すぎる会話はやり取りの境界で切られます。",
            110,
            84,
        ),
        (
            "감독자는 실행 전체를 소유합니다. 작업이 기다리는 모든 것이 끝나면 그 \
         작업을 시작하고, 중단된 에이전트를 다시 시작하며, 누구에게 알리기 전에 \
         일어난 일을 기록합니다. 너무 긴 대화는 주고받은 말의 경계에서 잘립니다.",
            107,
            65,
        ),
        (
            "Надзиратель владеет запуском. Он начинает задачу, когда завершилось всё, чего она \
         ждёт, перезапускает упавшего агента и записывает, что произошло, прежде чем \
         кому-либо об этом сообщить. Слишком длинный разговор обрезается на границах обменов.",
            112,
            66,
        ),
        (
            "🚀 Release ✅ tests 🧪 green 🎉 docs 📚 updated 🔥 latency down 📉 next: 🛠️ cleanup 👍🏽 👩‍💻 🇩🇪",
            50,
            40,
        ),
        ("∀x ∈ ℝ: ∑ α·β ≤ √(x² + y²) ⇒ ∃δ > 0, |f(x) − f(a)| < ε → π ≈ 3.14159 ± 10⁻⁵", 55, 55),
    ];

    /// Texts on which the two differ.
    const UNLIKE: [(&str, u64, u64); 4] = [
        (
            "Ο επόπτης κατέχει την εκτέλεση. Ξεκινά μια εργασία όταν έχουν τελειώσει όλα όσα \
         περιμένει και γράφει τι συνέβη πριν το μάθει οποιοσδήποτε.",
            123,
            50,
        ),
        (
            "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق، وقد وهبوا عقلا وضميرا وعليهم أن \
         يعامل بعضهم بعضا بروح الإخاء. يرجى قراءة هذا الملف وإعداد قائمة بالأخطاء. فشل \
         الاختبار لأن المهلة انتهت قبل وصول الرد من الخادم.",
            147,
            70,
        ),
        (
            "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त \
         है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव \
         से बर्ताव करना चाहिए। कृपया इस फ़ाइल को पढ़ें और त्रुटियों की सूची बनाएं। परीक्षण \
         विफल हुआ क्योंकि समय सीमा समाप्त हो गई।",
            282,
            84,
        ),
        (
            "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ \
         ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ \
         กรุณาอ่านไฟล์นี้และสรุปข้อผิดพลาดทั้งหมด",
            174,
            79,
        ),
    ];

    #[test]
    fn the_estimate_is_near_the_larger_count_and_hardly_ever_under_it() {
        for (text, older, newer) in ALIKE {
            let (estimate, larger) = (estimate(text), older.max(newer));
            assert!(estimate * 6 >= larger * 5, "{estimate} of {larger}: {text}");
            assert!(estimate * 5 <= larger * 6, "{estimate} of {larger}: {text}");
        }
    }

    #[test]
    fn where_vocabularies_differ_it_lies_between_them() {
        for (text, older, newer) in UNLIKE {
            let estimate = estimate(text);
            assert!(estimate < older && estimate > newer, "{estimate}, {older}, {newer}: {text}");
        }
    }

    #[test]
    fn runs_of_one_character_are_few_tokens() {
        assert_eq!(estimate(""), 0);
        for (text, most) in [("=", 12), ("-", 12), (" ", 3), ("\n", 12), ("x", 12), ("─", 13)] {
            let estimate = estimate(&text.repeat(80));
            assert!((1..=most).contains(&estimate), "{estimate}: {text:?}");
        }
    }

    /// Pieces that meet in every way.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-zA-Z]{1,9}",
            "[0-9]{1,7}",
            "[ \t\n]{1,4}",
            "[!-/:-@\\[-`{-~]{1,4}",
            "[a-zA-Z0-9+/]{1,12}",
            "[äéñøčłÆ漢字かなカ한글яЖ🚀─=αह]{1,5}",
            ".{1,4}",
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn letters_cost_the_same_one_by_one(text in text()) {
            let mut scan = Scan { last: Last::Nothing, before: '\0', run: 0 };
            let cost: u64 = text.chars().map(|c| scan.step(c)).sum();
            prop_assert_eq!(estimate(&text), cost.div_ceil(TOKEN));
        }

        #[test]
        fn a_whole_is_no_more_than_its_parts_and_no_less_than_each(a in text(), b in text()) {
            let whole = estimate(&format!("{a}{b}"));
            prop_assert!(whole <= estimate(&a) + estimate(&b) + 1);
            prop_assert!(whole >= estimate(&a).max(estimate(&b)));
        }
    }
}
