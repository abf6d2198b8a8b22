//! Sizes in configuration files: plain numbers, or text as everywhere else in the project (`128k`, `12m`).

use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Number(u64),
    Text(String),
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Raw::deserialize(deserializer)? {
        Raw::Number(bytes) => Ok(bytes),
        Raw::Text(text) => {
            measure::units::parse_bytes(&text, 1024).map_err(|e| serde::de::Error::custom(format!("{text:?}: {e}")))
        }
    }
}

pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}
