//! A real S3-compatible server for one test: moto's, which keeps everything in memory and honours conditional writes.
//!
//! `cargo xtask test` finds or installs it and sets FLOODMARK_S3_SERVER; without that it has to be on the search path.
//! FLOODMARK_SKIP_S3=1 leaves these tests out, on a machine where it cannot be had.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::support::wait_until;

/// Not a secret of anybody; looked for in everything that is printed.
pub(crate) const SECRET: &str = "correct-horse-battery-staple";
const BUCKET: &str = "checkpoints";

/// A running server, ended with its test.
pub(crate) struct S3 {
    child: Child,
    port: u16,
}

impl S3 {
    /// Starts a server with an empty bucket; `None` when these tests are to be left out.
    pub(crate) fn start() -> Option<Self> {
        if std::env::var_os("FLOODMARK_SKIP_S3").is_some_and(|value| value == "1") {
            println!("SKIPPED: FLOODMARK_SKIP_S3=1");
            return None;
        }
        let program = std::env::var_os("FLOODMARK_S3_SERVER").unwrap_or_else(|| "moto_server".into());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let started = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = started.unwrap_or_else(|error| {
            panic!(
                "no S3 server to test against: cannot start {program:?}: {error}\n\
                 `cargo xtask test` installs it (or `cargo xtask servers` alone); set FLOODMARK_S3_SERVER to a \
                 moto_server of your own, or FLOODMARK_SKIP_S3=1 to leave these tests out"
            )
        });
        let server = Self { child, port };
        wait_until("the S3 server answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let answer = server.ask("PUT", &format!("/{BUCKET}"));
        assert!(answer.contains(" 200 "), "the bucket is not made: {answer}");
        Some(server)
    }

    /// What a command needs in its environment to use it.
    pub(crate) fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "floodmark-tests".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Ends it, as an outage does.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let credential = "Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: AWS4-HMAC-SHA256 {credential}\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.stop();
    }
}
