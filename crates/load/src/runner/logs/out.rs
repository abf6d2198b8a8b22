//! The files of logs: text as it comes, or zlib streams that are kept until the end (`log_store_compressed`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::Error;

/// The file of one log.
#[derive(Debug)]
pub(super) enum Out {
    /// Lines are written as they come.
    Text(BufWriter<File>),
    /// Lines are compressed in memory. One write at the end keeps the streams of several clones apart.
    Compressed(ZlibEncoder<Vec<u8>>, File),
}

impl Out {
    /// The file, with lines compressed or not.
    pub fn new(file: File, compressed: bool) -> Out {
        match compressed {
            true => Out::Compressed(ZlibEncoder::new(Vec::new(), Compression::default()), file),
            false => Out::Text(BufWriter::new(file)),
        }
    }

    /// Writes everything that is left.
    ///
    /// # Errors
    /// The error of write(2).
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Out::Text(out) => out.flush(),
            Out::Compressed(encoder, file) => {
                encoder.try_finish()?;
                rustix::fs::flock(&*file, rustix::fs::FlockOperation::LockExclusive)?;
                file.write_all(encoder.get_ref())
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Text(out) => out.write(bytes),
            Out::Compressed(encoder, _) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Text(out) => out.flush(),
            Out::Compressed(..) => Ok(()),
        }
    }
}

/// The lines of a compressed log, of all its streams.
///
/// # Errors
/// A file that cannot be read, or is not such a log.
pub fn inflate(path: &Path) -> Result<String, Error> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Error::system("cannot open the log", &name, error))?;
    let mut rest = BufReader::new(file);
    let mut text = String::new();
    while !rest.fill_buf().map_err(|error| Error::system("cannot read the log", &name, error))?.is_empty() {
        let mut stream = ZlibDecoder::new(rest);
        stream.read_to_string(&mut text).map_err(|error| {
            let what = format!("{name} is not a log of log_store_compressed, or is cut off ({error}):");
            Error::usage(what, "--inflate-log", "fio's own .fz files have another form: unpack them with fio")
        })?;
        rest = stream.into_inner();
    }
    Ok(text)
}
