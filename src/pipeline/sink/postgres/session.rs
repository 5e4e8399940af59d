//! The connection to a server: made when it is needed, dropped after any failure, with a bound on every wait.

use std::time::Duration;

use postgres::config::SslMode;
use postgres::{Client, Config, NoTls, Transaction};

use super::error::{TableError, refused};
use crate::pipeline::sink::table::Secret;

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection that is silent for so long is dead.
const SILENCE: Duration = Duration::from_secs(30);
/// Pauses between tries at a start; with them a server may be away for about half a minute.
const PAUSES_MS: [u64; 10] = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000];
/// Bounds on the server's side: a lock is waited for so long, and a session that stopped in a transaction loses it.
const LIMITS: &str = "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'; \
                      SET client_min_messages = 'warning'; SET datestyle = 'ISO'; SET timezone = 'UTC'";

/// An address, and the connection to it while there is one.
pub(super) struct Session {
    config: Config,
    client: Option<Client>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts = self.config.get_hosts();
        f.debug_struct("Session").field("hosts", &hosts).field("database", &self.config.get_dbname()).finish()
    }
}

impl Session {
    pub(super) fn new(url: &Secret) -> Result<Self, TableError> {
        let parsed: Result<Config, _> = url.reveal().parse();
        let mut config = parsed.map_err(|error| TableError::Address(error.to_string()))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(TableError::Address("it names no host".to_owned()));
        }
        if !matches!(config.get_ssl_mode(), SslMode::Disable | SslMode::Prefer) {
            return Err(TableError::Address("it asks for TLS, which is not built in".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if config.get_application_name().is_none() {
            config.application_name("floodmark");
        }
        config.keepalives_idle(SILENCE);
        Ok(Self { config, client: None })
    }

    /// Does something with the connection. After an error there is a new one the next time.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Client) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let mut client = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                let mut client = self.config.connect(NoTls).map_err(refused("connect to PostgreSQL"))?;
                client.batch_execute(LIMITS).map_err(refused("set up the connection"))?;
                client
            }
        };
        let done = work(&mut client)?;
        self.client = Some(client);
        Ok(done)
    }

    /// As `with`, and waits for a server that is out of reach, for a while.
    pub(super) fn insist<T>(
        &mut self,
        mut work: impl FnMut(&mut Client) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        patiently(|| self.with(&mut work))
    }
}

/// Tries again while that may help.
pub(super) fn patiently<T>(mut work: impl FnMut() -> Result<T, TableError>) -> Result<T, TableError> {
    for pause in PAUSES_MS {
        match work() {
            Err(error) if error.may_pass() => {
                tracing::warn!(%error, pause_ms = pause, "the database is out of reach; trying again");
                std::thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    work()
}

/// Begins a transaction whose commit lasts, whatever the server's default.
pub(super) fn begin(client: &mut Client) -> Result<Transaction<'_>, TableError> {
    let mut transaction = client.transaction().map_err(refused("begin a transaction"))?;
    transaction.batch_execute("SET LOCAL synchronous_commit = on").map_err(refused("begin a transaction"))?;
    Ok(transaction)
}
