//! The notation of UUIDs.

/// The bytes of a UUID from its text: 32 hexadecimal digits, with hyphens or without.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&character| character != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut uuid = [0; 16];
    for (index, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(uuid)
}

/// The text of a UUID: five groups of lower-case digits (RFC 9562, section 4).
pub fn text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
