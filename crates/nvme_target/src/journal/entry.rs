//! A line of the log, for people and for programs.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::Level;

/// One event.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The time of the event.
    pub at: SystemTime,
    /// The level of the line.
    pub level: Level,
    /// The kind of the event, in a word that does not change: `connect`, `refused`, ...
    pub event: &'static str,
    /// The line for people. Names that hosts give stand in it [quoted].
    pub message: String,
    /// The parts of the event by name, as programs look for them.
    pub fields: Vec<(&'static str, Value)>,
}

/// A text that a peer has given, in quotation marks and ASCII: nothing in it ends the text, or looks like another one.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}

impl Entry {
    /// A line of this moment; the log gives it its level.
    pub fn new(event: &'static str, message: impl Into<String>) -> Entry {
        Entry { at: SystemTime::now(), level: Level::Notice, event, message: message.into(), fields: Vec::new() }
    }

    /// The line with one part more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Entry {
        self.fields.push((name, value.into()));
        self
    }

    /// The line for people, in ASCII and without its end. With `priority`, it begins as journald expects it.
    pub fn text(&self, priority: bool) -> String {
        let mut line = if priority { format!("<{}>", self.level.priority()) } else { String::new() };
        line.push_str(&format!("plimsoll: {}: ", self.level.word()));
        for character in self.message.chars() {
            match character {
                ' '..='~' => line.push(character),
                _ => line.extend(character.escape_default()),
            }
        }
        line
    }

    /// The line as a JSON object in ASCII, without its end.
    pub fn json(&self) -> String {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = Map::new();
        line.insert("time".into(), measure::time::rfc3339(since.as_micros() as u64).into());
        line.insert("level".into(), self.level.name().into());
        line.insert("event".into(), self.event.into());
        line.extend(self.fields.iter().map(|(name, value)| (name.to_string(), value.clone())));
        line.insert("message".into(), self.message.as_str().into());
        let mut text = String::new();
        for character in Value::Object(line).to_string().chars() {
            // A character beyond ASCII, or DEL, is part of a string. JSON writes it as units of UTF-16.
            if character.is_ascii() && character != '\x7f' {
                text.push(character);
            } else {
                let units =
                    character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
                text.push_str(&units);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_line_has_the_same_event_for_people_and_for_programs() {
        let entry = Entry::new("refused", "host \"a\" is refused").with("host", "a\u{202e}b").with("queue", 3);
        let entry = Entry { level: Level::Warning, at: UNIX_EPOCH, ..entry };
        assert_eq!(entry.text(false), "plimsoll: warning: host \"a\" is refused");
        assert_eq!(entry.text(true), "<4>plimsoll: warning: host \"a\" is refused");
        let line = entry.json();
        assert!(line.contains("a\\u202eb"), "{line}");
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        let expected = json!({
            "time": "1970-01-01T00:00:00.000000Z", "level": "WARNING", "event": "refused", "host": "a\u{202e}b",
            "queue": 3, "message": "host \"a\" is refused"
        });
        assert_eq!(parsed, expected);
    }

    proptest! {
        /// A name of any form leaves the line one line of printable ASCII, and JSON gives the name back.
        #[test]
        fn no_name_gets_out_of_its_line(name in any::<String>(), path in any::<String>()) {
            let message = format!("host {} connects: {path}", quoted(&name));
            let entry = Entry::new("connect", message).with("host", name.as_str());
            for line in [entry.text(false), entry.json()] {
                prop_assert!(line.chars().all(|character| character == ' ' || character.is_ascii_graphic()), "{line}");
            }
            let parsed: Value = serde_json::from_str(&entry.json()).unwrap();
            prop_assert_eq!(parsed["host"].as_str(), Some(name.as_str()));
        }
    }
}
