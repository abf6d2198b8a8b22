//! Points in time as text, in UTC: a result reads the same wherever it is read.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Year, month 0..12, day 1..=31 of a day counted from 1970-01-01 (Hinnant, "chrono-compatible low-level date
/// algorithms").
fn civil(days: u64) -> (u64, usize, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 2 } else { month - 10 };
    (year_of_era + era * 400 + u64::from(month < 2), month as usize, day)
}

/// The time as ctime(3) writes it, without the newline: `Fri Nov 20 13:17:07 2026`.
pub fn ctime(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// `2026-11-20 13:17:07 UTC`.
pub fn utc(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year}-{:02}-{day:02} {:02}:{:02}:{:02} UTC", month + 1, second / 3600, second / 60 % 60, second % 60)
}

/// `2026-11-20T13:17:07.250000Z` (RFC 3339).
pub fn rfc3339(unix_microseconds: u64) -> String {
    let (unix_seconds, microsecond) = (unix_microseconds / 1_000_000, unix_microseconds % 1_000_000);
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}Z", month + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(ctime(1_795_180_627), "Fri Nov 20 13:17:07 2026");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(rfc3339(1_795_180_627_000_250), "2026-11-20T13:17:07.000250Z");
    }
}
