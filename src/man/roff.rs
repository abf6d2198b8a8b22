//! Text as roff, the language of manual pages: man(7).

/// A section of rows, each a name in bold and its meaning below it; an empty text if there are no rows.
pub fn list(heading: &str, rows: &[(&str, &str)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!(".SH {heading}\n{}", rows.iter().map(|(name, meaning)| row(name, meaning)).collect::<String>())
}

/// A name in bold, with its meaning below it.
pub fn row(name: &str, meaning: &str) -> String {
    format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), prose(meaning))
}

/// A block that is printed as it stands.
pub fn verbatim(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escaped).collect();
    format!(".PP\n.RS 4\n.EX\n{}\n.EE\n.RE\n", lines.join("\n"))
}

/// Sentences, with the code between backquotes in bold.
pub fn prose(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let printed = |(index, piece)| match index % 2 == 1 {
        true => format!("\\fB{}\\fR", inner(piece)),
        false => inner(piece),
    };
    protected(pieces.map(printed).collect())
}

/// `name(1)` with the name in bold.
pub fn bold(reference: &str) -> String {
    let (name, section) = reference.split_once('(').unwrap_or((reference, ""));
    format!("\\fB{}\\fR({section}", escaped(name))
}

/// Text as roff prints it: hyphens that can be copied, backslashes, and no request at the start of the line.
pub fn escaped(text: &str) -> String {
    protected(inner(text))
}

fn inner(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// The line with a character of no width before a dot, which would begin a request.
fn protected(line: String) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
