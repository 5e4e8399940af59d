//! One JSON object per line: the whole line is checked, only the fields that are asked for are looked at.
//!
//! Grammar of RFC 8259, nothing more: no NaN, no comments, no trailing commas, no control characters in strings.
//! Of a field that occurs twice the last one counts. Nesting is followed to 128 levels.

use super::reject::{Refusal, RejectReason, shown};
use super::token::{Kind, Token, unescape_json};

/// Deepest nesting of a value that is skipped; the brackets are remembered as bits of a `u128`.
const DEPTH_MAX: u32 = 128;

/// Bytes that end the plain run of a string: quote, backslash, control characters.
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// Places of a line whose field is remembered; what comes later is looked up by name.
const PLACES_MAX: usize = 64;

/// The order in which a stream's lines have their fields. Most lines have that of the line before, and then a name is
/// found by one comparison, without scanning it first.
#[derive(Clone, Debug)]
pub(super) struct Order {
    // Each field as it stands in a line: name in quotes, and the colon. Empty where the name would be escaped.
    written: Vec<Vec<u8>>,
    // The field at each place of the lines before; at most PLACES_MAX.
    at_place: Vec<Option<usize>>,
}

impl Order {
    /// An order of `fields` that is not known yet.
    pub(super) fn new(fields: &[String]) -> Self {
        let plain = |field: &String| !field.bytes().any(|byte| SPECIAL[byte as usize]);
        let written = |field| if plain(field) { format!("\"{field}\":").into_bytes() } else { Vec::new() };
        Self { written: fields.iter().map(written).collect(), at_place: Vec::new() }
    }

    /// The field at `place` and how many bytes its name takes, when `text` starts as it did before.
    #[inline]
    fn expect(&self, place: usize, text: &[u8]) -> Option<(usize, usize)> {
        let slot = (*self.at_place.get(place)?)?;
        let written = &self.written[slot];
        (!written.is_empty() && text.starts_with(written)).then_some((slot, written.len()))
    }

    fn learn(&mut self, place: usize, slot: Option<usize>) {
        if place < PLACES_MAX {
            if self.at_place.len() <= place {
                self.at_place.resize(place + 1, None);
            }
            self.at_place[place] = slot;
        }
    }
}

/// What is wrong with a line, and at which byte of the block.
#[derive(Debug)]
struct Broken {
    at: usize,
    expected: &'static str,
}

type Step<T> = Result<T, Broken>;

/// Finds `fields` in the object at `start..end` of `text` and puts their values into `tokens`, in the same order.
pub(super) fn scan(
    text: &[u8],
    start: usize,
    end: usize,
    fields: &[String],
    order: &mut Order,
    tokens: &mut [Token],
    scratch: &mut Vec<u8>,
) -> Result<(), Refusal> {
    tokens.fill(Token::ABSENT);
    let mut scanner = Scanner { text: &text[..end], at: start };
    scanner.object(fields, order, tokens, scratch).map_err(|broken| {
        let found = match text.get(broken.at..end) {
            Some(rest) if !rest.is_empty() => format!("found `{}`", shown(&rest[..rest.len().min(12)])),
            _ => "found the end of the line".to_owned(),
        };
        let column = broken.at - start + 1;
        let detail = format!("not a JSON object: expected {}, {found}: byte={column}", broken.expected);
        Refusal::record(RejectReason::BrokenRecord, detail)
    })
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn broken<T>(&self, expected: &'static str) -> Step<T> {
        Err(Broken { at: self.at, expected })
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Step<()> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        self.broken(expected)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// The whole line.
    fn object(
        &mut self,
        fields: &[String],
        order: &mut Order,
        tokens: &mut [Token],
        scratch: &mut Vec<u8>,
    ) -> Step<()> {
        self.skip_space();
        self.expect(b'{', "`{`")?;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            let mut place = 0;
            loop {
                let slot = match order.expect(place, &self.text[self.at..]) {
                    Some((slot, length)) => {
                        self.at += length;
                        self.skip_space();
                        Some(slot)
                    }
                    None => {
                        let slot = self.name(fields, scratch)?;
                        order.learn(place, slot);
                        slot
                    }
                };
                place += 1;
                let token = self.value()?;
                if let Some(slot) = slot {
                    tokens[slot] = token;
                }
                self.skip_space();
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => break self.at += 1,
                    _ => return self.broken("`,` or `}`"),
                }
                self.skip_space();
            }
        }
        self.skip_space();
        if self.at == self.text.len() { Ok(()) } else { self.broken("the end of the line") }
    }

    /// A field's name and the colon; which of `fields` it is.
    fn name(&mut self, fields: &[String], scratch: &mut Vec<u8>) -> Step<Option<usize>> {
        let token = self.string("a field name in quotes")?;
        let raw = token.raw(self.text);
        let slot = if token.kind == Kind::Text {
            fields.iter().position(|field| field.as_bytes() == raw)
        } else {
            scratch.clear();
            unescape_json(raw, scratch)
                .and_then(|()| fields.iter().position(|field| field.as_bytes() == *scratch))
        };
        self.skip_space();
        self.expect(b':', "`:`")?;
        self.skip_space();
        Ok(slot)
    }

    fn value(&mut self) -> Step<Token> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string("a string"),
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Ok(Token::new(Kind::Number, start, self.at))
            }
            Some(b'{' | b'[') => {
                self.skip_compound()?;
                Ok(Token::new(Kind::Compound, start, self.at))
            }
            Some(b't') => self.word(b"true", Kind::Bool),
            Some(b'f') => self.word(b"false", Kind::Bool),
            Some(b'n') => self.word(b"null", Kind::Null),
            _ => self.broken("a value"),
        }
    }

    fn word(&mut self, word: &'static [u8], kind: Kind) -> Step<Token> {
        if !self.text[self.at..].starts_with(word) {
            return self.broken("a value");
        }
        let start = self.at;
        self.at += word.len();
        Ok(Token::new(kind, start, self.at))
    }

    fn string(&mut self, expected: &'static str) -> Step<Token> {
        self.expect(b'"', expected)?;
        let start = self.at;
        let mut kind = Kind::Text;
        loop {
            while let Some(byte) = self.peek()
                && !SPECIAL[byte as usize]
            {
                self.at += 1;
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Token::new(kind, start, self.at - 1));
                }
                Some(b'\\') => {
                    kind = Kind::EscapedText;
                    self.escape()?;
                }
                Some(_) => return self.broken("an escape for a control character"),
                None => return self.broken("a closing quote"),
            }
        }
    }

    fn escape(&mut self) -> Step<()> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    match self.peek() {
                        Some(digit) if digit.is_ascii_hexdigit() => self.at += 1,
                        _ => return self.broken("four hexadecimal digits"),
                    }
                }
            }
            _ => return self.broken("an escape"),
        }
        Ok(())
    }

    fn digits(&mut self) -> Step<()> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { self.broken("a digit") } else { Ok(()) }
    }

    fn number(&mut self) -> Step<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Passes over an object or array without recursion: one bit per open bracket, set for objects.
    fn skip_compound(&mut self) -> Step<()> {
        let (mut objects, mut depth) = (0_u128, 0_u32);
        loop {
            // At the start of a value.
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if depth == DEPTH_MAX {
                        return self.broken("less nesting");
                    }
                    let is_object = open == b'{';
                    self.at += 1;
                    (objects, depth) = (objects << 1 | u128::from(is_object), depth + 1);
                    self.skip_space();
                    let close = if is_object { b'}' } else { b']' };
                    if self.peek() != Some(close) {
                        if is_object {
                            self.name(&[], &mut Vec::new())?;
                        }
                        continue;
                    }
                }
                _ => {
                    self.value()?;
                    self.skip_space();
                }
            }
            // After a value, or before the bracket that closes an empty one.
            loop {
                let is_object = objects & 1 == 1;
                match self.peek() {
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    Some(b',') => break,
                    _ if is_object => return self.broken("`,` or `}`"),
                    _ => return self.broken("`,` or `]`"),
                }
                self.at += 1;
                (objects, depth) = (objects >> 1, depth - 1);
                if depth == 0 {
                    return Ok(());
                }
                self.skip_space();
            }
            self.at += 1;
            self.skip_space();
            if objects & 1 == 1 {
                self.name(&[], &mut Vec::new())?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanned(line: &str, fields: &[&str]) -> Result<Vec<(Kind, String)>, Refusal> {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        let mut tokens = vec![Token::ABSENT; fields.len()];
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        let mut order = Order::new(&fields);
        scan(line.as_bytes(), 0, line.len(), &fields, &mut order, &mut tokens, &mut scratch)?;
        let first = tokens.clone();
        // Now the order is known.
        scan(line.as_bytes(), 0, line.len(), &fields, &mut order, &mut tokens, &mut scratch)?;
        let raw = |tokens: &[Token]| {
            tokens.iter().map(|token| (token.kind, token.raw(line.as_bytes()).to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(raw(&first), raw(&tokens));
        for token in tokens {
            let text = token.unescaped(line.as_bytes(), &mut scratch).unwrap_or(b"?");
            out.push((token.kind, String::from_utf8(text.to_vec()).unwrap()));
        }
        Ok(out)
    }

    #[test]
    fn only_the_fields_asked_for_are_taken_and_the_last_of_two_counts() {
        let line = r#" {"a" : 1, "x":{"a":[2,{}],"b":[]}, "s":"q\"\u00e9\ud83d\ude00","n":null , "a":-0.5e+3,"t":true} "#;
        let found = scanned(line, &["a", "s", "n", "t", "x", "none"]).unwrap();
        let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
        use Kind::{Absent, Bool, Compound, EscapedText, Null, Number};
        assert_eq!(kinds, [Number, EscapedText, Null, Bool, Compound, Absent]);
        assert_eq!(found[0].1, "-0.5e+3");
        assert_eq!(found[1].1, "q\"é😀");
    }

    #[test]
    fn a_name_written_with_escapes_is_the_same_name() {
        assert_eq!(scanned(r#"{"\u0061":7}"#, &["a"]).unwrap()[0].1, "7");
    }

    #[test]
    fn a_line_in_another_order_is_read_by_name() {
        let fields = ["a", "b", "q\"", "\\n"].map(str::to_owned);
        let (mut order, mut tokens) = (Order::new(&fields), vec![Token::ABSENT; 4]);
        let mut values = |line: &str| {
            scan(line.as_bytes(), 0, line.len(), &fields, &mut order, &mut tokens, &mut Vec::new()).unwrap();
            let text = tokens.iter().map(|token| String::from_utf8_lossy(token.raw(line.as_bytes())));
            text.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(values(r#"{"a":1,"b":2,"q\"":3,"\\n":4}"#), "1 2 3 4");
        assert_eq!(values(r#"{"b":1,"a" : 2,"x":9,"q\"":3,"\\n":4}"#), "2 1 3 4");
        assert_eq!(values(r#"{"ab":1,"b":2,"\n":4}"#), " 2  ");
        assert_eq!(values(r#"{"b": 1,"b":2}"#), " 2  ");
    }

    #[test]
    fn broken_lines_are_refused_with_their_place() {
        let refusal = scanned(r#"{"a":1,}"#, &["a"]).unwrap_err();
        assert_eq!(refusal.detail, "not a JSON object: expected a field name in quotes, found `}`: byte=8");
        for line in [
            "",
            "null",
            "[1]",
            "1",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1}x",
            "{\"a\":01}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":+1}",
            "{\"a\":NaN}",
            "{\"a\":Infinity}",
            "{\"a\":1e}",
            "{\"a\":tru}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"\t\"}",
            "{\"a\":\"x}",
            "{a:1}",
            "{\"a\":[1,]}",
            "{\"a\":[1}}",
            "{\"a\":{\"b\"}}",
            "{\"a\":[}",
            "{'a':1}",
            "{\"a\":1,,\"b\":2}",
            "{\"a\":[1 2]}",
        ] {
            assert!(scanned(line, &["a"]).is_err(), "{line}");
        }
    }

    #[test]
    fn nesting_is_followed_to_its_bound() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(scanned(&nested(128), &[]).is_ok());
        assert!(scanned(&nested(129), &[]).is_err());
    }

    /// Text that is close to JSON.
    fn near_json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"b\"",
            "1",
            "-2.5",
            "1e3",
            "0",
            "null",
            "true",
            "false",
            " ",
            "\"\\n\"",
            "\"\\u0041\"",
            "{\"a\":1}",
            "[]",
            "{}",
            "\\",
            "\"",
            "\t",
            "-",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("{{\"a\":{}}}", pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn lines_are_accepted_exactly_when_serde_json_accepts_them(line in near_json()) {
            let theirs = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&line);
            let ours = scanned(&line, &["a"]);
            // The one difference: a number beyond double precision is no matter of grammar here.
            prop_assume!(!theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range")));
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                match &theirs["a"] {
                    serde_json::Value::String(text) => prop_assert_eq!(&ours[0].1, text),
                    serde_json::Value::Null => prop_assert_eq!(ours[0].0, Kind::Null),
                    serde_json::Value::Number(_) => prop_assert_eq!(ours[0].0, Kind::Number),
                    serde_json::Value::Bool(_) => prop_assert_eq!(ours[0].0, Kind::Bool),
                    _ => prop_assert_eq!(ours[0].0, Kind::Compound),
                }
            }
        }

        #[test]
        fn every_string_survives_escaping(text in any::<String>(), name in any::<String>()) {
            let mut object = serde_json::Map::new();
            object.insert(name.clone(), serde_json::Value::String(text.clone()));
            let line = serde_json::to_string(&object).unwrap();
            prop_assert_eq!(&scanned(&line, &[&name]).unwrap()[0].1, &text);
        }

        #[test]
        fn arbitrary_text_never_panics(line in any::<String>()) {
            let _ = scanned(&line, &["a"]);
        }
    }
}
