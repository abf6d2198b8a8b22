//! The smallest HTTP server that a scraper is content with: GET of one page, one answer a connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Clients at a time; one more is closed at once.
const CLIENTS_MAX: usize = 16;
/// Bytes of a request's head.
const HEAD_MAX: usize = 8 << 10;
/// The time that a client has for each step.
const PATIENCE: Duration = Duration::from_secs(2);

/// A function that makes the page.
pub type Page = dyn Fn() -> String + Send + Sync;

/// A listening socket; closed when dropped.
pub struct Http {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Http {
    /// A server that answers GET and HEAD of `/metrics` with the page, as Prometheus' text.
    ///
    /// # Errors
    /// The errors of bind(2).
    pub fn start(address: SocketAddr, page: Box<Page>) -> io::Result<Http> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopping);
        let acceptor =
            thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &seen, &Arc::from(page)))?;
        Ok(Http { address, stopping, acceptor: Some(acceptor) })
    }

    /// The address that the server listens on, with the port that the system chose if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        let mut to = self.address;
        if to.ip().is_unspecified() {
            to.set_ip(if to.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        let woken = TcpStream::connect_timeout(&to, PATIENCE).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, stopping: &AtomicBool, page: &Arc<Page>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        if stopping.load(Ordering::Acquire) {
            return;
        }
        let Ok(client) = client else {
            thread::sleep(Duration::from_millis(10)); // out of descriptors: some may be free soon
            continue;
        };
        if clients.load(Ordering::Relaxed) >= CLIENTS_MAX {
            continue; // closed by being dropped
        }
        clients.fetch_add(1, Ordering::Relaxed);
        let (page, counted) = (Arc::clone(page), Arc::clone(&clients));
        let answer = move || {
            let _ = answer(client, &*page); // the client went away: nobody is left to be told
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("metrics client".into()).spawn(answer).is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(mut client: TcpStream, page: &Page) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_MAX {
        match client.read(&mut buffer)? {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", "text/plain; version=0.0.4", page()),
        ("GET" | "HEAD", "/") => ("200 OK", "text/plain", "the metrics are at /metrics\n".to_string()),
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "there is /metrics\n".to_string()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_string()),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if method != "HEAD" {
        client.write_all(body.as_bytes())?;
    }
    // The kernel resets a connection that is closed with bytes unread, and the answer is lost.
    client.shutdown(Shutdown::Write)?;
    let mut rest = 0;
    while rest < HEAD_MAX {
        match client.read(&mut buffer)? {
            0 => break,
            read => rest += read,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Http, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn the_page_is_answered_and_nothing_else_is_there() {
        let server = Http::start(([127, 0, 0, 1], 0).into(), Box::new(|| "x 1\n".into())).expect("a server");
        let answer = ask(&server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n")
                && answer.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\nx 1\n"),
            "{answer}"
        );
        assert!(ask(&server, "HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(&server, "GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(&server, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&server, &format!("{}\r\n\r\n", "x".repeat(HEAD_MAX))).starts_with("HTTP/1.1 405"));
    }
}
